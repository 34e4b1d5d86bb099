//! Rules that must hold in every order in which threads serve, wake and end a client; a model chooses the
//! order (`tests/shuttle/run`).

use std::task::Waker;

use shuttle::thread;

use super::*;
use crate::keyspace::interleavings::explore;

/// A client that looks at the news whenever it is served.
struct Scene {
    rota: Arc<Rota>,
    clientele: Arc<Clientele>,
    task: Arc<Task>,
    news: Arc<AtomicU64>,
    seen: Arc<AtomicU64>,
}

impl Scene {
    fn new() -> Arc<Scene> {
        let rota = Arc::new(Rota::new(2, 0, |task| {
            task.run();
            false
        }));
        let clientele = Clientele::new(&rota, None);
        let (news, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (own_news, own_seen) = (Arc::clone(&news), Arc::clone(&seen));
        clientele.add(|_| {
            poll_fn(move |_| {
                own_seen.store(own_news.load(Ordering::SeqCst), Ordering::SeqCst);
                Poll::Pending
            })
        });
        let task = clientele.tasks.lock().values().find_map(Weak::upgrade).expect("it was added");
        Arc::new(Scene { rota, clientele, task, news, seen })
    }

    fn serve(&self) {
        let _ = self.rota.poll_turn(&mut Context::from_waker(Waker::noop()));
    }

    fn wake(&self) {
        self.news.fetch_add(1, Ordering::SeqCst);
        Wake::wake_by_ref(&self.task);
    }

    /// Runs these in threads of their own, and then serves who waits.
    fn play(self: &Arc<Self>, acts: &[fn(&Scene)]) {
        let threads: Vec<_> = acts
            .iter()
            .map(|act| {
                let (scene, act) = (Arc::clone(self), *act);
                thread::spawn(move || act(&scene))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
        while !self.rota.queue.lock().ready.is_empty() {
            self.serve();
        }
    }
}

#[test]
fn a_client_is_served_after_each_time_that_it_is_woken() {
    explore(|| {
        let scene = Scene::new();
        scene.play(&[Scene::serve, Scene::serve, Scene::wake, Scene::wake]);
        assert_eq!(scene.seen.load(Ordering::SeqCst), 2);
    });
}

fn ends_with_its_server(serve: fn(&Scene)) {
    let scene = Scene::new();
    scene.play(&[serve, Scene::wake, |scene| scene.clientele.stop()]);
    assert!(scene.clientele.tasks.lock().is_empty(), "a client is left");
}

#[test]
fn a_client_ends_with_its_server_whatever_threads_do_with_it() {
    explore(|| ends_with_its_server(Scene::serve));
}

#[test]
#[should_panic(expected = "a client is left")]
fn not_looking_whether_the_server_has_stopped_is_detected() {
    explore(|| {
        ends_with_its_server(|scene| {
            if scene.task.begin() {
                drop(scene.task.serving.lock());
                scene.task.state.store(IDLE, Ordering::SeqCst);
            }
        });
    });
}
