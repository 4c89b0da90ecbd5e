/// Where the time of the traced steps went.
///
/// Per rank and step, from the step's first moment to its last, each moment counts once:
///
///   compute         some stream computes
///   lookup          rows are read or written, and nothing is computed: exposed lookup
///   moving          data travels, and neither of the two: exposed communication
///   waiting         a collective waits for the last peer, and none of the three
///   other           input and output of files, and nothing of the above
///   idle            nothing of the above
///
/// so that they add up to the step. A collective waits until its last peer is there, then moves.
/// What a stream goes on with into the next step counts moment by moment in both; as a part, in the
/// step in which it begins.
/// Definitions as in Holistic Trace Analysis, but for the split of waiting and moving.
///
/// What-ifs are bounds, not forecasts: `perfect overlap` hides all moving and waiting that
/// computing and lookups of the same rank can hide; `balanced ranks` takes away all waiting for
/// peers, but spreads what the slowest had to do; `doubled link` halves exposed moving.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/trace/trace_file.h"

namespace weft::trace {

/// Seconds of one rank, or of the mean rank, over all steps of a trace.
struct Breakdown {
  double step = 0;
  double compute = 0;
  double lookup = 0;
  double moving = 0;
  double waiting = 0;
  double other = 0;
  double idle = 0;
  double collectives = 0;  ///< in which some collective was under way
  double overlapped = 0;   ///< of these, beside computing or lookups
};

/// A part of the step by name; its collectives apart.
struct PartTime {
  std::string name;  ///< "lookup"; "grad_dist: all_to_all" for a collective inside
  Kind kind = Kind::kCompute;
  std::vector<double> seconds;  ///< [ranks], per step
  std::vector<double> waiting;  ///< [ranks], per step; of collectives
  std::vector<double> bytes;    ///< [ranks], per step
  std::vector<double> cross_host_bytes;

  /// Returns seconds per step: the mean over the ranks, or the most of one. REQUIRES: at least one
  /// rank.
  [[nodiscard]] double mean() const;
  [[nodiscard]] double longest() const;  ///< of a rank

  /// Bytes that a rank sends to others, over the time in which they move: what is called the bus
  /// bandwidth of a collective. 0 where nothing moves.
  [[nodiscard]] double bus_bandwidth() const;
};

/// What others waited for a rank.
struct Straggler {
  int rank = 0;
  std::int64_t last = 0;  ///< collectives in which it came last
  std::int64_t of = 0;    ///< collectives in which it took part with others
  double waited_for = 0;  ///< seconds per step, of the others' mean, because it came last
  std::string part;       ///< in which it cost the others most
};

/// A stretch of the chain of work that the step's length follows from.
struct PathShare {
  std::string name;  ///< as PartTime's, or "idle"
  int rank = 0;
  double seconds = 0;  ///< per step
};

/// Data that came to a host from another, or from itself.
struct LinkUse {
  std::string from;
  std::string to;
  double bytes = 0;    ///< per step, of messages long enough to be timed
  double seconds = 0;  ///< per step, in which at least one of them was coming

  [[nodiscard]] double rate() const { return seconds > 0 ? bytes / seconds : 0.0; }
};

/// What one rank reads of one table.
struct TableShare {
  std::string table;
  int rank = 0;
  double rows = 0;   ///< per step
  double bytes = 0;  ///< per step
};

/// What stands out, as a name and as a sentence.
struct Finding {
  /// Kinds of findings; findings.h says when there is one.
  enum class Kind : std::uint8_t { kStraggler, kSkewedTable, kSlowLink };

  Kind kind = Kind::kStraggler;
  std::string name;  ///< "rank 3", a table, a host
  std::string text;
};

/// Returns the name in reports for programs: "straggler", "skewed_table", "slow_link".
std::string_view to_string(Finding::Kind kind);

/// The figures of a trace over all its steps, and what stands out in them.
struct Report {
  std::int64_t steps = 0;
  std::vector<std::string> hosts;  ///< [ranks]
  double clock_error = 0;          ///< seconds; the largest
  std::int64_t dropped = 0;
  Breakdown mean;                     ///< per step, of the mean rank
  std::vector<Breakdown> ranks;       ///< per step
  std::vector<PartTime> parts;        ///< longest mean first
  std::vector<Straggler> stragglers;  ///< most waited for first
  std::vector<PathShare> path;        ///< longest first
  std::vector<LinkUse> links;         ///< slowest first; empty where ranks share memory
  std::vector<TableShare> tables;     ///< most bytes first
  std::vector<Finding> findings;      ///< findings.h says when something stands out
  double perfect_overlap = 0;         ///< seconds of a step, if
  double balanced_ranks = 0;
  double doubled_link = 0;
};

/// `trace`: of all ranks, as read_trace() gives it.
Report make_report(const std::vector<RankWork>& trace);

/// For people: tables of at most 120 columns.
std::string to_text(const Report& report);

/// For programs: docs/trace.md.
std::string to_json(const Report& report);

/// A part of the step before and after; "idle" is one too.
struct Change {
  std::string name;
  double before = 0;  ///< seconds per step of the mean rank
  double after = 0;

  [[nodiscard]] double delta() const { return after - before; }
};

/// Of all parts that one of the reports has, largest change first.
std::vector<Change> changes(const Report& before, const Report& after);

/// What changed between two reports, and the parts that explain it.
std::string diff_to_text(const Report& before, const Report& after);
std::string diff_to_json(const Report& before, const Report& after);

}  // namespace weft::trace
