/// A recorder's spans as a Chrome trace: for Perfetto, chrome://tracing and Holistic Trace
/// Analysis, and for `weft trace`. Format: docs/trace.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/parts.h"
#include "weft/trace/recorder.h"

namespace weft::trace {

/// What a rank's lookups have read of a table.
struct TableReads {
  std::string table;
  std::int64_t rows = 0;   ///< one per id, repeated ones too
  std::int64_t bytes = 0;  ///< of their weights
};

/// Where a rank's spans belong.
struct RankTrace {
  int rank = 0;
  int ranks = 1;
  std::string host;
  std::string backend;                  ///< "local" or "mpi"
  Range steps;                          ///< recorded, of the job
  std::int64_t base_ns = 0;             ///< time 0 of all ranks' files, by rank 0's clock
  std::int64_t clock_offset_ns = 0;     ///< this rank's clock minus rank 0's
  std::int64_t clock_error_ns = 0;      ///< how wrong that may be
  std::vector<TableReads> tables = {};  ///< in the steps recorded
  std::string configuration = {};       ///< of the job, YAML; given for rank 0
};

/// Name of a rank's file in a trace's folder, "trace-00003.json".
std::string chrome_file_name(int rank);

/// The file's text: one process per rank; for each track its spans as they nest, and for a stream
/// what it did when (segments.h) as what readers take for a GPU's kernels.
std::string to_chrome_json(const Recorder& recorder, const RankTrace& trace);

}  // namespace weft::trace
