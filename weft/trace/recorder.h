/// Spans of one rank: what ran on which thread or stream, from when to when.
///
/// Tracks   one per thread or stream at work, written by one thread at a time. Spans of a track
///          nest: one that began inside another ends inside it.
/// Off      a null track, or a recorder that is not started: one load and a branch.
/// On       two readings of the clock and one store of 64 bytes per span, no lock, no allocation
///          (bench/trace_bench.cc); a step has some tens of spans.
/// Memory   room for a fixed number of spans per track, taken when the track is made; later spans
///          are counted and left out.
/// Time     nanoseconds of the steady clock. It is one clock for all processes of a host; those of
///          other hosts are aligned when a trace is written (chrome.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::trace {

/// The steady clock now.
std::int64_t now_ns();

/// What a thread does during a span; decides which total of a report it counts into.
enum class Kind : std::uint8_t {
  kStep,        ///< a whole step, for orientation
  kCompute,     ///< arithmetic: dense model, optimizers, sorting, packing
  kLookup,      ///< rows of tables read or written
  kCollective,  ///< ranks exchange data
  kWait,        ///< nothing: waits for a batch or for a stream
  kIo,          ///< files are read or written
};

/// Returns the name in the files of a trace: "step", "compute", ...
std::string_view to_string(Kind kind);

/// When the data of one peer came in.
struct Arrival {
  std::int32_t rank = -1;     ///< of the world
  std::int64_t begin_ns = 0;  ///< when the peer was known to be there
  std::int64_t end_ns = 0;    ///< when its last byte had come
  std::int64_t bytes = 0;
};

/// What a collective moved, beside when.
struct Collective {
  const std::string* group = nullptr;  ///< outlives the recorder
  std::uint64_t sequence = 0;          ///< of the group's calls: pairs the ranks' spans
  std::int32_t ranks = 0;              ///< of the group
  std::int64_t arrived_ns = 0;         ///< when the last peer was there
  std::int64_t bytes = 0;              ///< this rank sent to others
  std::int64_t cross_host_bytes = 0;   ///< of these, to other hosts
  std::int64_t messages = 0;           ///< that this rank sent to others; silent lanes have none
  std::int64_t cross_host_messages = 0;
  std::int64_t first_arrival = 0;  ///< set by the track: where its arrivals are
  std::int32_t arrivals = 0;       ///< set by the track
};

/// A stretch of time in which a thread does one thing.
struct Span {
  const char* name = nullptr;  ///< outlives the recorder: a literal
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t number = -1;      ///< of the step, where it is one, or may run beside another
  std::int32_t collective = -1;  ///< which of the track's collectives; -1: none
  Kind kind = Kind::kCompute;
};

/// A figure at a moment.
struct Sample {
  const char* name = nullptr;  ///< outlives the recorder: a literal
  std::int64_t time_ns = 0;
  double value = 0;
};

/// How a track is shown: work of a stream, or of a thread beside the streams.
enum class TrackKind : std::uint8_t { kStream, kThread };

/// The spans of one thread or stream, and room for them. Made by Recorder::make_track().
class Track {
 public:
  Track(std::string name, TrackKind kind, std::int64_t capacity, const std::atomic<bool>& on);

  [[nodiscard]] const std::string& name() const { return name_; }

  [[nodiscard]] TrackKind kind() const { return kind_; }

  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }

  /// Adds a span that has ended, whether the track is on or not: who makes spans looks at on()
  /// where they begin. A span without room is counted and left out.
  void add(const Span& span);

  /// `arrivals`: of the peers whose data came as messages; those for which there is no room are
  /// left out.
  void add(Span span, const Collective& collective, std::span<const Arrival> arrivals = {});

  /// What has been added, in the order of ends. Also while more is added.
  [[nodiscard]] std::span<const Span> spans() const {
    return {spans_.get(), static_cast<std::size_t>(count_.load(std::memory_order_acquire))};
  }

  /// A counter's value now, where the track is on. Some per step: may allocate.
  void sample(const char* name, double value);

  /// In order of time. Not while more are added.
  [[nodiscard]] std::span<const Sample> samples() const { return samples_; }

  [[nodiscard]] const Collective& collective(const Span& span) const {
    return collectives_[static_cast<std::size_t>(span.collective)];
  }

  /// Returns the arrivals of a collective that collective() gave.
  [[nodiscard]] std::span<const Arrival> arrivals(const Collective& collective) const {
    return {arrivals_.get() + collective.first_arrival,
            static_cast<std::size_t>(collective.arrivals)};
  }

  /// Spans for which there was no room.
  [[nodiscard]] std::int64_t dropped() const { return dropped_.load(); }

 private:
  std::string name_;
  TrackKind kind_;
  std::int64_t capacity_;
  const std::atomic<bool>& on_;
  std::unique_ptr<Span[]> spans_;
  std::unique_ptr<Collective[]> collectives_;
  std::unique_ptr<Arrival[]> arrivals_;  // [capacity_]
  std::vector<Sample> samples_;
  std::int32_t num_collectives_ = 0;
  std::int64_t num_arrivals_ = 0;
  std::atomic<std::int64_t> count_ = 0;
  std::atomic<std::int64_t> dropped_ = 0;
};

/// The tracks of one rank, all on or all off.
class Recorder {
 public:
  /// `capacity`: spans per track.
  explicit Recorder(std::int64_t capacity = 1 << 16);

  /// A new track; it lives as long as the recorder. Tracks of equal names are numbered. From any
  /// thread.
  Track& make_track(std::string_view name, TrackKind kind);

  /// Records spans that begin between start() and stop(). Between steps, when streams are idle.
  void start() { on_.store(true); }

  void stop() { on_.store(false); }

  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }

  /// In the order in which they were made.
  [[nodiscard]] const std::deque<Track>& tracks() const { return tracks_; }

 private:
  std::int64_t capacity_;
  std::atomic<bool> on_ = false;
  std::mutex mutex_;  // of make_track
  std::deque<Track> tracks_;
};

/// A span from here to the end of the block.
class Scope {
 public:
  Scope(Track* track, const char* name, Kind kind, std::int64_t number = -1) {
    if (track != nullptr && track->on()) {
      track_ = track;
      span_ = {.name = name, .begin_ns = now_ns(), .number = number, .kind = kind};
    }
  }

  ~Scope() {
    if (track_ != nullptr) {
      span_.end_ns = now_ns();
      track_->add(span_);
    }
  }

  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Track* track_ = nullptr;
  Span span_;
};

}  // namespace weft::trace
