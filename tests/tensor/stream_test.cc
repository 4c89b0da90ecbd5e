// Order, events and failures of CPU streams. No test looks at the clock.
#include "weft/tensor/stream.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/error.h"

namespace weft {
namespace {

/// A door that a stage waits at until the test opens it.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

struct Kind {
  const char* name;
  DeviceKind device;
  bool is_inline;
};

class Streams : public ::testing::TestWithParam<Kind> {
 protected:
  Streams()
      : device_(make_device(
            {.kind = GetParam().device, .threads = 1, .check_seed = 3, .check_max_delay_us = 50})) {
  }

  std::unique_ptr<Stream> make(const char* name) {
    return device_->make_stream({.name = name, .is_inline = GetParam().is_inline});
  }

  std::unique_ptr<Device> device_;
};

const Stage kFails = [](Context&) { throw std::runtime_error("the stage failed"); };

TEST_P(Streams, RunInOrderWithTheirContext) {
  const auto stream = make("main");
  EXPECT_EQ(stream->name(), "main");
  std::vector<int> order;
  std::vector<Stage> stages;
  for (int i = 0; i < 200; ++i) {  // more than the queue holds at first
    stages.emplace_back([&, i](Context& ctx) {
      EXPECT_EQ(ctx.device, device_.get());
      EXPECT_EQ(ctx.pool, &device_->pool());
      order.push_back(i);
    });
  }
  for (const Stage& stage : stages) {
    stream->enqueue(stage);
  }
  stream->synchronize();
  ASSERT_EQ(order.size(), 200U);
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  }
  stream->synchronize();  // of an empty queue
}

TEST_P(Streams, EventsOrderStreams) {
  const auto a = make("a");
  const auto b = make("b");
  int value = 0;  // plain: under the thread sanitizer a missing order is a race
  std::vector<int> seen;
  const Stage write = [&](Context&) { ++value; };
  const Stage read = [&](Context&) { seen.push_back(value); };
  for (int step = 0; step < 100; ++step) {
    a->enqueue(write);
    b->wait(a->record());
    b->enqueue(read);
    a->wait(b->record());
  }
  a->synchronize();
  b->synchronize();
  ASSERT_EQ(seen.size(), 100U);
  for (int step = 0; step < 100; ++step) {
    EXPECT_EQ(seen[static_cast<std::size_t>(step)], step + 1);
  }
}

TEST_P(Streams, AnEventAfterAWaitImpliesWhatWasWaitedFor) {
  const auto a = make("a");
  const auto b = make("b");
  const auto c = make("c");
  int value = 0;
  int seen = 0;
  const Stage write = [&](Context&) { value = 5; };
  const Stage read = [&](Context&) { seen = value; };
  a->enqueue(write);
  b->wait(a->record());
  c->wait(b->record());  // b has no stage of its own
  c->enqueue(read);
  c->synchronize();
  EXPECT_EQ(seen, 5);
}

TEST_P(Streams, EmptyAndOwnEventsAreReached) {
  const auto stream = make("main");
  int runs = 0;
  const Stage stage = [&](Context&) { ++runs; };
  stream->wait(Event{});
  stream->enqueue(stage);
  stream->wait(stream->record());
  stream->enqueue(stage);
  stream->synchronize();
  EXPECT_EQ(runs, 2);
}

TEST_P(Streams, AFailedStageSkipsTheLaterOnes) {
  const auto stream = make("main");
  std::vector<int> ran;
  const Stage first = [&](Context&) { ran.push_back(1); };
  const Stage later = [&](Context&) { ran.push_back(2); };
  stream->enqueue(first);
  const Event before = stream->record();
  stream->enqueue(kFails);
  stream->enqueue(later);
  EXPECT_THROW(stream->synchronize(), std::runtime_error);
  EXPECT_NO_THROW(stream->wait_on_host(before)) << "this point lies before the failure";
  stream->enqueue(later);
  EXPECT_THROW(stream->synchronize(), std::runtime_error) << "a failed stream stays failed";
  EXPECT_EQ(ran, std::vector<int>{1});
}

TEST_P(Streams, AWaitTakesAFailureOver) {
  const auto a = make("a");
  const auto b = make("b");
  const auto c = make("c");
  int ran = 0;
  const Stage count = [&](Context&) { ++ran; };
  const Event before = a->record();
  a->enqueue(kFails);
  b->wait(before);
  b->enqueue(count);  // runs: what it waited for has not failed
  b->wait(a->record());
  b->enqueue(count);  // skipped
  c->wait(b->record());
  c->enqueue(count);  // skipped: taken over from b, which took it over from a
  try {
    c->synchronize();
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the stage failed");
  }
  EXPECT_THROW(b->synchronize(), std::runtime_error);
  EXPECT_THROW(a->synchronize(), std::runtime_error);
  EXPECT_EQ(ran, 1);
}

TEST_P(Streams, WaitingOnAStreamThatEndsDoesNotHang) {
  auto a = make("a");
  const auto b = make("b");
  int ran = 0;
  const Stage count = [&](Context&) { ++ran; };
  a->enqueue(count);
  b->wait(a->record());
  b->enqueue(count);
  a->synchronize();
  a.reset();
  b->synchronize();
  EXPECT_EQ(ran, 2);
}

TEST_P(Streams, TheHostWaitsOnlyForTheStreamsOwnEvents) {
  const auto a = make("a");
  const auto b = make("b");
  EXPECT_THROW(a->wait_on_host(b->record()), Error);
}

INSTANTIATE_TEST_SUITE_P(Devices,
                         Streams,
                         ::testing::Values(Kind{"worker", DeviceKind::kCpu, false},
                                           Kind{"inline", DeviceKind::kCpu, true},
                                           Kind{"check", DeviceKind::kCheck, false},
                                           Kind{"check_inline", DeviceKind::kCheck, true}),
                         [](const auto& instance) { return std::string(instance.param.name); });

class WorkerStreams : public ::testing::Test {
 protected:
  std::unique_ptr<Stream> make(const char* name) { return device_->make_stream({.name = name}); }

  std::unique_ptr<Device> device_ = make_device({});
};

TEST_F(WorkerStreams, EnqueueDoesNotWait) {
  Gate gate;
  std::thread::id worker;
  const Stage stage = [&](Context&) {
    gate.wait();
    worker = std::this_thread::get_id();
  };
  const auto stream = make("a name that is longer than the system shows");
  stream->enqueue(stage);
  gate.open();  // would never be reached if enqueue() waited
  stream->synchronize();
  EXPECT_NE(worker, std::this_thread::get_id());
}

TEST_F(WorkerStreams, TheQueueGrowsWhileAStageRuns) {
  Gate gate;
  std::vector<int> order;
  const Stage blocked = [&](Context&) { gate.wait(); };
  std::vector<Stage> stages;
  for (int i = 0; i < 1000; ++i) {
    stages.emplace_back([&, i](Context&) { order.push_back(i); });
  }
  const auto stream = make("main");
  stream->enqueue(blocked);
  for (const Stage& stage : stages) {
    stream->enqueue(stage);
  }
  gate.open();
  stream->synchronize();
  ASSERT_EQ(order.size(), 1000U);
  EXPECT_EQ(order[0], 0);
  EXPECT_EQ(order[999], 999);
}

TEST_F(WorkerStreams, TheHostWaitsForAnEventAndNoLonger) {
  Gate gate;
  int ran = 0;
  const Stage first = [&](Context&) { ran = 1; };
  const Stage blocked = [&](Context&) { gate.wait(); };
  const auto stream = make("main");
  stream->enqueue(first);
  const Event event = stream->record();
  stream->enqueue(blocked);
  stream->wait_on_host(event);
  EXPECT_EQ(ran, 1);
  gate.open();
  stream->synchronize();
}

TEST_F(WorkerStreams, AnInlineStreamWaitsForAWorker) {
  Gate gate;
  int value = 0;
  int seen = 0;
  const Stage write = [&](Context&) {
    gate.wait();
    value = 3;
  };
  const Stage read = [&](Context&) { seen = value; };
  const auto worker = make("worker");
  const auto inline_stream = device_->make_stream({.name = "inline", .is_inline = true});
  worker->enqueue(write);
  gate.open();
  inline_stream->wait(worker->record());
  inline_stream->enqueue(read);
  EXPECT_EQ(seen, 3);
}

// b waits for a, and a is destroyed while its first stage still runs: the second is dropped, and b
// learns that it will never come.
TEST_F(WorkerStreams, DestroyingAStreamWithAQueueFailsThoseWhoWait) {
  Gate gate;
  int ran = 0;
  const Stage blocked = [&](Context&) { gate.wait(); };
  const Stage count = [&](Context&) { ++ran; };
  auto a = make("a");
  const auto b = make("b");
  a->enqueue(blocked);
  const Event first = a->record();
  a->enqueue(count);
  a->wait(b->record());
  a->enqueue(count);
  b->wait(first);
  b->wait(a->record());
  b->enqueue(count);
  std::thread destroyer([&] { a.reset(); });
  // The destructor waits for the running stage; whether the gate opens before or after it begins,
  // nobody may hang.
  gate.open();
  destroyer.join();
  try {
    b->synchronize();
    EXPECT_EQ(ran, 3) << "everything of a had run before it was told to end";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_NE(std::string(error.what()).find("stream 'a'"), std::string::npos);
  }
}

TEST_F(WorkerStreams, AStreamThatWaitsForAnotherCanBeDestroyed) {
  Gate gate;
  const Stage blocked = [&](Context&) { gate.wait(); };
  const auto a = make("a");
  auto b = make("b");
  auto c = make("c");
  a->enqueue(blocked);
  b->wait(a->record());
  c->wait(b->record());
  c.reset();
  b.reset();  // a is still behind the gate
  gate.open();
  a->synchronize();
}

TEST_F(WorkerStreams, AFailedStreamCanBeDestroyedWhileOthersWait) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    auto a = make("a");
    const auto b = make("b");
    a->enqueue(kFails);
    b->wait(a->record());
    a.reset();
    EXPECT_ANY_THROW(b->synchronize());
  }
}

TEST_F(WorkerStreams, ManyStreamsInARing) {
  constexpr int kStreams = 5;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < kStreams; ++i) {
    streams.push_back(make("ring"));
  }
  std::int64_t value = 0;
  const Stage add = [&](Context&) { ++value; };
  for (int i = 0; i < 300; ++i) {
    Stream& stream = *streams[static_cast<std::size_t>(i % kStreams)];
    stream.wait(streams[static_cast<std::size_t>((i + kStreams - 1) % kStreams)]->record());
    stream.enqueue(add);
  }
  for (const auto& stream : streams) {
    stream->synchronize();
  }
  EXPECT_EQ(value, 300);
}

}  // namespace
}  // namespace weft
