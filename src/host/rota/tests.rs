//! Clients are served in their order, long requests beside each other, and none outlives its server.

use std::sync::mpsc;
use std::task::Waker;
use std::time::Instant;

use tokio::runtime::Builder;

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

fn rota(long_threads_max: usize) -> Arc<Rota> {
    Arc::new(Rota::new(1, long_threads_max, |task| {
        task.run();
        false
    }))
}

/// Serves the clients that wait, as a server task does.
fn serve(rota: &Rota) {
    while !rota.queue.lock().ready.is_empty() {
        let _ = rota.poll_turn(&mut Context::from_waker(Waker::noop()));
    }
}

#[test]
fn clients_are_served_in_the_order_in_which_they_are_woken() {
    let rota = rota(1);
    let clientele = Clientele::new(&rota, None);
    let (served, order) = mpsc::channel();
    for number in 0..3 {
        let served = served.clone();
        clientele.add(|_| {
            poll_fn(move |_| {
                let _ = served.send(number);
                Poll::Pending
            })
        });
    }
    let tasks: HashMap<_, _> =
        clientele.tasks.lock().iter().filter_map(|(number, task)| Some((*number, task.upgrade()?))).collect();
    serve(&rota);
    // A client that is woken twice is served once.
    [2, 0, 2, 1].into_iter().for_each(|number| Arc::clone(&tasks[&number]).wake());
    serve(&rota);
    assert_eq!(order.try_iter().collect::<Vec<_>>(), [0, 1, 2, 2, 0, 1]);
}

#[test]
fn long_requests_that_come_together_run_together() {
    let rota = rota(3);
    let clientele = Clientele::new(&rota, None);
    let (begun, begins) = mpsc::channel();
    let add = || {
        let (begun, (end, ended)) = (begun.clone(), mpsc::channel::<()>());
        clientele.add(|ticket| async move {
            ticket.go_to(Lane::Long).await;
            let _ = begun.send(());
            let _ = ended.recv();
        });
        serve(&rota);
        end
    };
    drop(add());
    begins.recv_timeout(PATIENCE).expect("it runs");
    let since = Instant::now();
    while rota.long.lock().idle == 0 {
        assert!(since.elapsed() < PATIENCE, "its thread waits for the next one");
        thread::yield_now();
    }
    let ends = [add(), add(), add()];
    for _ in &ends {
        begins.recv_timeout(PATIENCE).expect("each has a thread");
    }
    assert_eq!(rota.long.lock().threads, 3);
    drop(ends);
    rota.close();
}

#[test]
fn a_client_ends_with_its_server() {
    let rota = rota(1);
    let clientele = Clientele::new(&rota, None);
    clientele.add(|_| std::future::pending());
    serve(&rota);
    clientele.add(|_| std::future::pending());
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(clientele.close());
    assert!(clientele.tasks.lock().is_empty());
    clientele.add(|_| std::future::pending());
    assert!(clientele.tasks.lock().is_empty(), "one that comes too late is not served");
}
