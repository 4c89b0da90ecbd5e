#include "weft/topology/describe.h"

#include <string>

#include "weft/spec/walk.h"

namespace weft::topology {
namespace {

using spec::Bounds;
using spec::Visitor;

constexpr double kMaxRate = 1e24;  ///< far from overflow in products with ranks
constexpr double kMaxBytes = 0x1.0p60;
constexpr double kMaxSeconds = 1e6;

constexpr Bounds kRateBounds = {.min = 0, .max = kMaxRate};
constexpr Bounds kByteBounds = {.min = 0, .max = kMaxBytes};
constexpr Bounds kSecondBounds = {.min = 0, .max = kMaxSeconds};
constexpr Bounds kShareBounds = {.min = 0, .max = 1, .above_min = true};

void walk_source(Visitor& v, std::string& source) {
  v.value({.name = "source", .meaning = "Where the figure is from, in words."}, &source);
}

void walk_efficiency(Visitor& v, double& efficiency) {
  v.value({.name = "efficiency",
           .meaning = "Share of the value that can be expected; 1 where it is measured.",
           .bounds = kShareBounds},
          &efficiency);
}

void rate(Visitor& v, const spec::Field& field, Rate& object) {
  v.section(field, [&](Visitor& inner) {
    inner.value({.name = "value",
                 .meaning = "As the source has it: a peak, or measured.",
                 .unit = field.unit,
                 .bounds = kRateBounds},
                &object.value);
    walk_efficiency(inner, object.efficiency);
    walk_source(inner, object.source);
  });
}

void amount(Visitor& v, const spec::Field& field, Amount& object) {
  v.section(field, [&](Visitor& inner) {
    inner.value({.name = "value", .unit = field.unit, .bounds = field.bounds}, &object.value);
    walk_source(inner, object.source);
  });
}

}  // namespace

// Found by the helpers of walk.h by argument-dependent lookup.
static void walk(Visitor& v, HostGroup& c) {
  v.value({.name = "count",
           .meaning = "Hosts that are alike.",
           .unit = "hosts",
           .bounds = spec::at_least(1, spec::kMaxRanks)},
          &c.count);
  v.value({.name = "ranks",
           .meaning = "On each of them.",
           .unit = "ranks",
           .bounds = spec::at_least(1, spec::kMaxRanks)},
          &c.ranks);
}

static std::string label_of(const HostGroup&) {
  return {};
}

static void walk(Visitor& v, RowPoint& c) {
  v.value({.name = "row_bytes",
           .meaning = "Length of a row.",
           .unit = "bytes",
           .bounds = {.min = 1, .max = kMaxBytes}},
          &c.row_bytes);
  v.value({.name = "read", .meaning = "Of rows read.", .unit = "bytes/s", .bounds = kRateBounds},
          &c.read);
  v.value({.name = "update",
           .meaning = "Of rows read and written back; a byte counts once.",
           .unit = "bytes/s",
           .bounds = kRateBounds},
          &c.update);
  v.value({.name = "near",
           .meaning = "Of rows read that all lie in a cache; 0: as any bytes in a cache.",
           .unit = "bytes/s",
           .bounds = kRateBounds},
          &c.near);
}

static std::string label_of(const RowPoint&) {
  return {};
}

static void walk(Visitor& v, RowRates& c) {
  walk_efficiency(v, c.efficiency);
  walk_source(v, c.source);
  list(v, {.name = "points", .meaning = "By length, ascending; in between it is interpolated."},
       c.points, {.key = {}});
}

static void walk(Visitor& v, Memory& c) {
  amount(v, {.name = "hbm", .meaning = "Of a GPU.", .unit = "bytes", .bounds = kByteBounds}, c.hbm);
  amount(v,
         {.name = "ddr",
          .meaning = "A rank's share of its host's memory.",
          .unit = "bytes",
          .bounds = kByteBounds},
         c.ddr);
  amount(v, {.name = "ssd", .meaning = "Of a rank.", .unit = "bytes", .bounds = kByteBounds},
         c.ssd);
  amount(v,
         {.name = "reserve",
          .meaning = "Share kept for all that is no table.",
          .bounds = {.min = 0, .max = 1, .below_max = true}},
         c.reserve);
}

static void walk(Visitor& v, Compute& c) {
  rate(v, {.name = "gemm_fp32", .meaning = "Matrix products.", .unit = "flops/s"}, c.gemm_fp32);
  rate(v, {.name = "gemm_bf16", .meaning = "0: as fp32.", .unit = "flops/s"}, c.gemm_bf16);
  rate(v, {.name = "dots", .meaning = "Dot interactions; 0: as gemm_fp32.", .unit = "flops/s"},
       c.dots);
  rate(v, {.name = "copy", .meaning = "Bytes read plus bytes written.", .unit = "bytes/s"}, c.copy);
  section(v, {.name = "rows", .meaning = "Random rows."}, c.rows);
  rate(v, {.name = "sort", .meaning = "Coalescing; 0: as copy.", .unit = "bytes/s"}, c.sort);
  amount(v,
         {.name = "cache",
          .meaning = "Of a rank's cores, their own; 0: nothing stays near.",
          .unit = "bytes",
          .bounds = kByteBounds},
         c.cache);
  amount(v,
         {.name = "repeat",
          .meaning = "For one more gradient of a row that has one already.",
          .unit = "seconds",
          .bounds = kSecondBounds},
         c.repeat);
  amount(v,
         {.name = "draw",
          .meaning = "For one element of a row rounded stochastically, beside its bytes; 0: none.",
          .unit = "seconds",
          .bounds = kSecondBounds},
         c.draw);
  amount(v,
         {.name = "stage",
          .meaning = "What a stage takes beside its work.",
          .unit = "seconds",
          .bounds = kSecondBounds},
         c.stage);
  amount(v,
         {.name = "collective",
          .meaning = "Of any collective, before a message is sent.",
          .unit = "seconds",
          .bounds = kSecondBounds},
         c.collective);
}

static void walk(Visitor& v, Disk& c) {
  rate(v,
       {.name = "read_blocks",
        .meaning = "Blocks of 4 KiB at random places; 0: reads take no time.",
        .unit = "blocks/s"},
       c.read_blocks);
  amount(v,
         {.name = "block",
          .meaning = "Of a processor, for a block that is read and checked.",
          .unit = "seconds",
          .bounds = kSecondBounds},
         c.block);
}

static void walk(Visitor& v, Link& c) {
  rate(v, {.name = "rank", .meaning = "One rank sends, or receives.", .unit = "bytes/s"}, c.rank);
  rate(v,
       {.name = "host",
        .meaning = "All ranks of a host together; 0: as many as they are.",
        .unit = "bytes/s"},
       c.host);
  amount(
      v,
      {.name = "latency", .meaning = "Of a message.", .unit = "seconds", .bounds = kSecondBounds},
      c.latency);
}

static void walk(Visitor& v, Links& c) {
  section(v, {.name = "self", .meaning = "Inside a rank."}, c.self);
  section(v, {.name = "host", .meaning = "Between ranks of a host."}, c.host);
  section(v, {.name = "network", .meaning = "Between hosts."}, c.network);
}

void visit(Visitor& v, Cluster& c) {
  v.value({.name = "version",
           .meaning = "Of this file's format.",
           .bounds = {.min = 1, .max = 1},
           .default_text = "required"},
          &c.version);
  v.value({.name = "name", .meaning = "Of the cluster."}, &c.name);
  v.value({.name = "notes", .meaning = "What it is."}, &c.notes);
  list(v, {.name = "hosts", .meaning = "Groups of hosts that are alike."}, c.hosts, {.key = {}});
  v.value({.name = "threads",
           .meaning = "Of a rank.",
           .unit = "threads",
           .bounds = spec::at_least(1, spec::kMaxRanks)},
          &c.threads);
  section(v, {.name = "memory", .meaning = "Of a rank."}, c.memory);
  section(v, {.name = "compute", .meaning = "Of a rank, all of its host being at work."},
          c.compute);
  section(v, {.name = "disk", .meaning = "Of a rank, all of its host reading."}, c.disk);
  section(v, {.name = "links", .meaning = "Each direction by itself."}, c.links);
}

}  // namespace weft::topology
