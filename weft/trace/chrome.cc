// Names and categories are those that Holistic Trace Analysis looks for: "kernel" events on a
// stream, of which those named ncclKernel_... are communication and the others computation, and
// "user_annotation" events ProfilerStep#k. A kernel counts where a cpu_op has its correlation. It
// finds the rank by a pattern that needs a space after the colon.
#include "weft/trace/chrome.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "weft/trace/segments.h"

namespace weft::trace {

namespace {

constexpr int kStreamRows = 100;  // added to the row of a stream for what it did when

class Writer {
 public:
  explicit Writer(const RankTrace& trace) : trace_(trace) {}

  void begin(std::int64_t dropped) {
    append(
        "{{\"schemaVersion\": 1, \"displayTimeUnit\": \"ms\", \"baseTimeNanoseconds\": 0,\n"
        "\"distributedInfo\": {{\"backend\": \"{}\", \"rank\": {}, \"world_size\": {}}},\n"
        "\"weft\": {{\"version\": 1, \"host\": \"{}\", \"first_step\": {}, \"last_step\": {}, "
        "\"begin_ns\": {}, \"clock_offset_ns\": {}, \"clock_error_ns\": {}, \"dropped\": {},\n"
        "\"tables\": [",
        trace_.backend, trace_.rank, trace_.ranks, escaped(trace_.host), trace_.steps.begin,
        trace_.steps.end, trace_.base_ns, trace_.clock_offset_ns, trace_.clock_error_ns, dropped);
    for (const TableReads& table : trace_.tables) {
      append("{}{{\"table\": \"{}\", \"rows\": {}, \"bytes\": {}}}",
             &table == trace_.tables.data() ? "" : ", ", escaped(table.table), table.rows,
             table.bytes);
    }
    text_ += "]";
    if (!trace_.configuration.empty()) {
      append(",\n\"configuration\": \"{}\"", escaped(trace_.configuration));
    }
    text_ += "},\n\"traceEvents\": [";
  }

  std::string end() {
    text_ += "\n]}\n";
    return std::move(text_);
  }

  void name_process() {
    metadata("process_name", 0,
             fmt::format("\"rank {} on {}\"", trace_.rank, escaped(trace_.host)));
    number("process_sort_index", 0, trace_.rank);
  }

  void name_row(int row, std::string_view name) {
    metadata("thread_name", row, fmt::format("\"{}\"", escaped(name)));
    number("thread_sort_index", row, row);
  }

  void counter(const Sample& sample) {
    separate();
    append(
        "{{\"ph\": \"C\", \"name\": \"{}\", \"pid\": {}, \"ts\": {:.3f}, "
        "\"args\": {{\"value\": {}}}}}",
        escaped(sample.name), trace_.rank, microseconds(sample.time_ns), sample.value);
  }

  /// `correlation`: joins a span with its segments; unique in the file.
  void span(const Track& track, const Span& span, int row, std::int64_t correlation) {
    if (span.kind == Kind::kStep) {
      event(fmt::format("ProfilerStep#{}", span.number), "user_annotation", row, span.begin_ns,
            span.end_ns);
      text_ += "}";
      return;
    }
    event(span.name, "cpu_op", row, span.begin_ns, span.end_ns);
    append(", \"args\": {{\"kind\": \"{}\", \"correlation\": {}", to_string(span.kind),
           correlation);
    step(span);
    collective(track, span);
    text_ += "}}";
  }

  void segment(const Track& track, const Segment& segment, int row, std::int64_t correlation) {
    const Span& span = *segment.span;
    event(span.kind == Kind::kCollective ? fmt::format("ncclKernel_{}", span.name)
                                         : std::string(span.name),
          "kernel", row, segment.begin_ns, segment.end_ns);
    append(", \"args\": {{\"kind\": \"{}\", \"stream\": {}, \"device\": {}, \"correlation\": {}",
           to_string(span.kind), row, trace_.rank, correlation);
    if (segment.around != nullptr && segment.around->kind != Kind::kStep) {
      append(", \"part\": \"{}\"", escaped(segment.around->name));
    }
    step(span);
    collective(track, span);
    arrivals(track, span);
    text_ += "}}";
  }

 private:
  template <typename... Arguments>
  void append(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    text_ += fmt::format(format, std::forward<Arguments>(arguments)...);
  }

  static std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (c == '"' || c == '\\') {
        out += '\\';
        out += c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        out += fmt::format("\\u{:04x}", static_cast<int>(c));
      } else {
        out += c;
      }
    }
    return out;
  }

  [[nodiscard]] double microseconds(std::int64_t ns) const {
    return static_cast<double>(ns - trace_.clock_offset_ns - trace_.base_ns) / 1000.0;
  }

  void separate() {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
  }

  void metadata(const char* what, int row, const std::string& name) {
    separate();
    append(
        "{{\"ph\": \"M\", \"name\": \"{}\", \"pid\": {}, \"tid\": {}, \"args\": {{\"name\": {}}}}}",
        what, trace_.rank, row, name);
  }

  void number(const char* what, int row, int index) {
    separate();
    append(
        "{{\"ph\": \"M\", \"name\": \"{}\", \"pid\": {}, \"tid\": {}, "
        "\"args\": {{\"sort_index\": {}}}}}",
        what, trace_.rank, row, index);
  }

  /// All but the closing brace.
  void event(std::string_view name,
             const char* category,
             int row,
             std::int64_t begin_ns,
             std::int64_t end_ns) {
    separate();
    append(
        "{{\"ph\": \"X\", \"cat\": \"{}\", \"name\": \"{}\", \"pid\": {}, \"tid\": {}, "
        "\"ts\": {:.3f}, \"dur\": {:.3f}",
        category, escaped(name), trace_.rank, row, microseconds(begin_ns),
        static_cast<double>(std::max<std::int64_t>(end_ns - begin_ns, 0)) / 1000.0);
  }

  /// Whose it is, where it may run in another one.
  void step(const Span& span) {
    if (span.number >= 0) {
      append(", \"step\": {}", span.number);
    }
  }

  void collective(const Track& track, const Span& span) {
    if (span.collective < 0) {
      return;
    }
    const Collective& moved = track.collective(span);
    append(
        ", \"Collective name\": \"{}\", \"Process Group Name\": \"{}\", \"Group size\": {}, "
        "\"Seq\": {}, \"dtype\": \"Byte\", \"In msg nelems\": {}, \"logical_bytes\": {}, "
        "\"bytes\": {}, \"in_host_bytes\": {}, \"cross_host_bytes\": {}, \"messages\": {}, "
        "\"cross_host_messages\": {}, \"arrived\": {:.3f}",
        escaped(span.name), escaped(*moved.group), moved.ranks, moved.sequence, moved.bytes,
        moved.bytes, moved.bytes, moved.bytes - moved.cross_host_bytes, moved.cross_host_bytes,
        moved.messages, moved.cross_host_messages, microseconds(moved.arrived_ns));
  }

  /// Only of data that took a while: what comes with the header has come when the peer has.
  void arrivals(const Track& track, const Span& span) {
    if (span.collective < 0) {
      return;
    }
    bool any = false;
    for (const Arrival& one : track.arrivals(track.collective(span))) {
      if (one.end_ns > one.begin_ns) {
        text_ += any ? ", " : ", \"from\": [";
        append("[{}, {:.3f}, {:.3f}, {}]", one.rank, microseconds(one.begin_ns),
               microseconds(one.end_ns), one.bytes);
        any = true;
      }
    }
    text_ += any ? "]" : "";
  }

  const RankTrace& trace_;
  std::string text_;
  bool first_ = true;
};

}  // namespace

std::string chrome_file_name(int rank) {
  return fmt::format("trace-{:05}.json", rank);
}

std::string to_chrome_json(const Recorder& recorder, const RankTrace& trace) {
  std::int64_t dropped = 0;
  for (const Track& track : recorder.tracks()) {
    dropped += track.dropped();
  }
  Writer writer(trace);
  writer.begin(dropped);
  writer.name_process();
  int row = 0;
  std::int64_t numbered = 0;  // spans of the tracks before
  for (const Track& track : recorder.tracks()) {
    ++row;
    writer.name_row(row, track.name());
    const std::span<const Span> spans = track.spans();
    const auto correlation = [&](const Span& span) {
      return numbered + 1 + (&span - spans.data());
    };
    for (const Span& span : spans) {
      writer.span(track, span, row, correlation(span));
    }
    if (track.kind() == TrackKind::kStream) {
      writer.name_row(kStreamRows + row, fmt::format("{}, innermost", track.name()));
      for (const Segment& segment : innermost(spans)) {
        if (segment.span->kind != Kind::kWait && segment.span->kind != Kind::kStep) {
          writer.segment(track, segment, kStreamRows + row, correlation(*segment.span));
        }
      }
    }
    for (const Sample& one : track.samples()) {
      writer.counter(one);
    }
    numbered += static_cast<std::int64_t>(spans.size());
  }
  return writer.end();
}

}  // namespace weft::trace
