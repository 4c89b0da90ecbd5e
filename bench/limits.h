/// What this machine can do, measured: the limits that figures are compared with.
///
/// Every probe uses all threads of one rank's pool. Values are of the moment: a shared machine's
/// speed changes within seconds, so a benchmark measures its limits again beside every repetition.
/// Source    the roofline model: Williams, Waterman, Patterson, CACM 2009.
#pragma once

#include <cstdint>
#include <functional>

#include "bench/gemm_probe.h"
#include "bench/row_probe.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"

namespace weft::bench {

struct LimitOptions {
  std::int64_t memory_bytes = std::int64_t{4} << 30;  ///< rows of the random probes lie in
  double budget_s = 0.1;                              ///< of one probe
  std::function<void()> align;  ///< called before each probe: ranks wait for each other here
};

class Limits {
 public:
  /// The device's memory comes in huge pages where the system gives them. Row memory is allocated
  /// by the first probe that needs it.
  explicit Limits(Device& device, const LimitOptions& options = {});

  /// Bytes read plus bytes written per second when `bytes` in all are copied again and again: half
  /// of them read, half written. Small ones stay in a cache, as they do in what is compared.
  double copy_bytes_per_s(std::int64_t bytes);

  /// Bytes per second of reading `bytes` from end to end, again and again.
  double read_bytes_per_s(std::int64_t bytes);

  /// Seconds of going once over `updated` bytes that are read and written in place and `read` bytes
  /// beside them that are only read, again and again.
  double update_s(std::int64_t updated, std::int64_t read);

  /// Random rows of `row_bytes` per second, of those that options.memory_bytes hold.
  double random_rows_per_s(std::int64_t row_bytes, RowAccess access);

  /// The same for given rows: `next` as in row_probe.h, offsets below memory_bytes().
  double rows_per_s(const NextRows& next, std::int64_t row_bytes, RowAccess access);

  /// Reads 64 MiB, so that first and second-level caches and the TLB hold nothing else: what a
  /// lookup finds after the rest of a step. Where a hypervisor's page tables have fallen out of the
  /// caches too, a random row costs several misses.
  void forget_caches();

  [[nodiscard]] std::int64_t memory_bytes() const { return options_.memory_bytes; }

  double gemm_flops_per_s(const GemmShape& shape);

 private:
  void align() const;
  std::byte* row_memory();

  Device& device_;
  LimitOptions options_;
  Buffer rows_, from_, to_, other_;
  std::uint64_t draws_ = 0;  // of random rows, so that no two passes touch the same
};

}  // namespace weft::bench
