#include "weft/metrics/throughput.h"

#include "weft/base/error.h"

namespace weft::metrics {
namespace {

// Marks are no closer than this part of the window, so that there are few however short steps are.
constexpr int kMarksPerWindow = 64;

double rate(std::int64_t samples, std::chrono::nanoseconds time) {
  return time.count() > 0
             ? static_cast<double>(samples) / (static_cast<double>(time.count()) * 1e-9)
             : 0.0;
}

}  // namespace

Throughput::Throughput(Time start, Time window) : start_{start, 0}, window_(window) {
  WEFT_CHECK(window.count() > 0, "a window of {} ns", window.count());
  marks_.reserve(kMarksPerWindow + 4);
  marks_.push_back({start, 0});
}

void Throughput::add(Time now, std::int64_t samples) {
  WEFT_CHECK(now >= marks_.back().time, "time went back by {} ns",
             (marks_.back().time - now).count());
  samples_ += samples;
  if (marks_.size() > 1 && now - marks_[marks_.size() - 2].time < window_ / kMarksPerWindow) {
    marks_.back() = {now, samples_};
  } else {
    marks_.push_back({now, samples_});
  }
  // Keep the youngest mark that is still at least one window old.
  while (marks_.size() > 2 && now - marks_[1].time >= window_) {
    marks_.erase(marks_.begin());
  }
}

double Throughput::lifetime() const {
  return rate(samples_, marks_.back().time - start_.time);
}

double Throughput::window() const {
  return rate(samples_ - marks_.front().samples, marks_.back().time - marks_.front().time);
}

}  // namespace weft::metrics
