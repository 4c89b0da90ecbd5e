#include "weft/topology/show.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/topology/rates.h"

namespace weft::topology {
namespace {

/// 1.5e10, "bytes/s" -> "15 Gbytes/s".
std::string scaled(double value, const char* unit) {
  constexpr std::array<const char*, 8> kPrefixes = {"n", "u", "m", "", "k", "M", "G", "T"};
  if (value == 0.0) {
    return "-";
  }
  int prefix = 3;
  while (std::abs(value) >= 999.5 && prefix < 7) {
    value /= 1000;
    ++prefix;
  }
  while (std::abs(value) < 0.9995 && prefix > 0) {
    value *= 1000;
    --prefix;
  }
  return fmt::format("{:.3g} {}{}", value, kPrefixes[static_cast<std::size_t>(prefix)], unit);
}

std::string from(const std::string& source) {
  return source.empty() ? "" : "  " + source;
}

void add(std::string& out, const char* name, const Rate& rate, const char* unit) {
  if (rate.value > 0.0) {
    out += fmt::format("  {:<20}{:>15}{}{}\n", name, scaled(rate.achieved(), unit),
                       rate.efficiency < 1.0 ? fmt::format("  ({:.3g} of {})", rate.efficiency,
                                                           scaled(rate.value, unit))
                                             : "",
                       from(rate.source));
  }
}

void add(std::string& out, const char* name, const Amount& amount, const char* unit) {
  if (amount.value > 0.0) {
    out += fmt::format("  {:<20}{:>15}{}\n", name, scaled(amount.value, unit), from(amount.source));
  }
}

void add_memory(std::string& out, const Memory& memory) {
  for (const auto& [name, amount] : {std::pair("hbm", &memory.hbm), std::pair("ddr", &memory.ddr),
                                     std::pair("ssd", &memory.ssd)}) {
    if (amount->value > 0.0) {
      out += fmt::format("  {:<20}{:>15}{}\n", name,
                         format_bytes(static_cast<std::uint64_t>(amount->value)),
                         from(amount->source));
    }
  }
  out += fmt::format("  {:<20}{:>15.3g}{}\n", "reserve", memory.reserve.value,
                     from(memory.reserve.source));
}

void add_rows(std::string& out, const Cluster& cluster) {
  const RowRates& rows = cluster.compute.rows;
  for (const RowPoint& point : rows.points) {
    const auto rate = [&](RowAccess access) {
      return scaled(point.row_bytes / row_s(cluster, access, point.row_bytes), "B/s");
    };
    out += fmt::format("  {:<20}{:>15}, update {:>12}, near {:>12}\n",
                       fmt::format("rows of {} B, read", point.row_bytes), rate(RowAccess::kRead),
                       rate(RowAccess::kUpdate), rate(RowAccess::kNear));
  }
  if (rows.efficiency < 1.0 || !rows.source.empty()) {
    out += fmt::format("  {:<20}{:>15}{}\n", "  of the points",
                       fmt::format("{:.3g}", rows.efficiency), from(rows.source));
  }
}

void add_link(std::string& out, LinkClass which, const Link& link) {
  if (link == Link{}) {
    return;
  }
  const std::string name(to_string(which));
  add(out, (name + ", a rank").c_str(), link.rank, "B/s");
  add(out, (name + ", a host").c_str(), link.host, "B/s");
  add(out, (name + ", latency").c_str(), link.latency, "s");
}

}  // namespace

std::string to_text(const Cluster& cluster) {
  std::string out =
      fmt::format("{}: {} on {}, {} each\n", cluster.name, counted(ranks(cluster), "rank"),
                  counted(hosts(cluster), "host"), counted(cluster.threads, "thread"));
  if (!cluster.notes.empty()) {
    out += cluster.notes + "\n";
  }
  for (const HostGroup& group : cluster.hosts) {
    out += fmt::format("  {} of {}\n", counted(group.count, "host"), counted(group.ranks, "rank"));
  }
  out += fmt::format("memory of a rank, of which tables may have {}\n",
                     format_bytes(static_cast<std::uint64_t>(table_capacity(cluster))));
  add_memory(out, cluster.memory);
  out += "compute of a rank, as expected\n";
  const Compute& compute = cluster.compute;
  add(out, "gemm fp32", compute.gemm_fp32, "flops/s");
  add(out, "gemm bf16", compute.gemm_bf16, "flops/s");
  add(out, "dots", compute.dots, "flops/s");
  add(out, "copy", compute.copy, "B/s");
  add_rows(out, cluster);
  add(out, "sort", compute.sort, "B/s");
  add(out, "repeat", compute.repeat, "s");
  add(out, "draw", compute.draw, "s");
  add(out, "stage", compute.stage, "s");
  add(out, "collective", compute.collective, "s");
  if (cluster.disk.read_blocks.value > 0.0) {
    out += "disks of a rank, as expected\n";
    add(out, "blocks of 4 KiB", cluster.disk.read_blocks, "/s");
    add(out, "processor, a block", cluster.disk.block, "s");
  }
  out += "links, each direction, as expected\n";
  for (const LinkClass which : {LinkClass::kSelf, LinkClass::kHost, LinkClass::kNetwork}) {
    add_link(out, which, link(cluster, which));
  }
  return out;
}

}  // namespace weft::topology
