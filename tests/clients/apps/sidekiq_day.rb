# Two workers of Debian's Sidekiq, unchanged, and who gives them jobs: each job must be done once. They keep queues in
# lists (BRPOP), what is for later and what failed in sorted sets, and what they did in hashes and counters.
#
# The workers load this file, too, for the jobs; alone it is the test.

require "sidekiq"

Sidekiq.configure_server { |_| Sidekiq.options[:poll_interval_average] = 1 }

# Counts what was done in a hash: the number of the job, and how often.
def done(number)
  Sidekiq.redis { |redis| redis.hincrby("done", number, 1) }
end

class Work
  include Sidekiq::Job

  def perform(number)
    done(number)
  end
end

class WorkThatFailsOnce
  include Sidekiq::Job
  sidekiq_retry_in { 1 }

  def perform(number)
    raise "not at once" if Sidekiq.redis { |redis| redis.hincrby("tried", number, 1) } == 1
    done(number)
  end
end

return unless $PROGRAM_NAME == __FILE__

require "minitest/autorun"
require "sidekiq/api"

class Workers < Minitest::Test
  JOBS = 1000
  SECONDS_MAX = 60

  def setup
    Sidekiq.redis(&:flushall)
    @workers = Array.new(2) { start }
  end

  def teardown
    @workers.each { |worker| Process.kill(:TERM, worker) }
    @workers.each { |worker| Process.wait(worker) }
  end

  def start
    options = ["--require", File.expand_path(__FILE__), "--concurrency", "5", "--timeout", "1"]
    spawn("sidekiq", *options, %i[out err] => File::NULL)
  end

  def wait_until
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + SECONDS_MAX
    until yield
      flunk "not in #{SECONDS_MAX} s" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      sleep 0.05
    end
  end

  # Waits until all jobs are done, and asks whether one was done twice.
  def assert_done_once(jobs)
    wait_until { Sidekiq.redis { |redis| redis.hlen("done") } == jobs }
    wait_until { Sidekiq::Stats.new.processed >= jobs && Sidekiq::Queue.new.size.zero? }
    assert_equal (0...jobs).to_h { |number| [number.to_s, "1"] }, Sidekiq.redis { |redis| redis.hgetall("done") }
  end

  def test_each_job_is_done_once
    JOBS.times { |number| Work.perform_async(number) }
    assert_done_once JOBS
    assert_equal [JOBS, 0], [Sidekiq::Stats.new.processed, Sidekiq::Stats.new.failed]
  end

  def test_many_jobs_are_queued_at_once
    Sidekiq::Client.push_bulk("class" => Work, "args" => (0...JOBS).to_a.zip)
    assert_done_once JOBS
  end

  def test_jobs_for_later_are_done_later
    20.times { |number| Work.perform_in(1, number) }
    assert_done_once 20
    assert_equal 0, Sidekiq::ScheduledSet.new.size
  end

  def test_jobs_that_fail_are_tried_again
    20.times { |number| WorkThatFailsOnce.perform_async(number) }
    assert_done_once 20
    assert_equal [20, 0, 0], [Sidekiq::Stats.new.failed, Sidekiq::RetrySet.new.size, Sidekiq::DeadSet.new.size]
  end
end
