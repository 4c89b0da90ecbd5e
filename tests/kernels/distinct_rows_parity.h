// The parity lists of the operations on distinct rows: every backend passes them
// (tests/kernels/parity.h).
#pragma once

#include <deque>
#include <set>
#include <string>
#include <vector>

#include "tests/kernels/parity.h"
#include "weft/kernels/distinct_rows.h"

namespace weft::kernels::test {

/// Lists of ids of one table, on the host and on a device.
class IdLists {
 public:
  /// `repeats`: about so many ids have the same row. Offsets do not begin at 0.
  IdLists(
      Random& random, std::int64_t lists, std::int64_t ids, std::int64_t rows, std::int64_t repeats)
      : rows_(rows) {
    const std::int64_t kinds = std::max<std::int64_t>(ids / repeats, 1);
    std::vector<std::int64_t> some;
    for (std::int64_t i = 0; i < kinds; ++i) {
      some.push_back(i == 0 ? rows - 1 : below(random, rows));
    }
    for (std::int64_t l = 0; l < lists; ++l) {
      const std::int64_t before = below(random, 4);
      std::vector<std::int64_t> numbers(at(before), -5);  // of no row: nobody looks at them
      std::vector<std::int64_t> offsets = {before};
      const std::int64_t own = l == 1 ? 0 : ids;
      for (std::int64_t i = 0; i < own; ++i) {
        numbers.push_back(some[at(below(random, kinds))]);
        if (random() % 3 == 0) {
          offsets.push_back(std::ssize(numbers));
        }
      }
      offsets.push_back(std::ssize(numbers));
      lists_.push_back({Copied(numbers), Copied(offsets)});
    }
  }

  std::vector<Bags> host() {
    std::vector<Bags> all;
    for (List& list : lists_) {
      all.push_back(bags(list, list.ids.host(), list.offsets.host()));
    }
    return all;
  }

  std::vector<Bags> place(Context& ctx) {
    std::vector<Bags> all;
    for (List& list : lists_) {
      all.push_back(bags(list, list.ids.place(ctx), list.offsets.place(ctx)));
    }
    return all;
  }

  [[nodiscard]] std::int64_t rows() const { return rows_; }

 private:
  struct List {
    Copied<std::int64_t> ids, offsets;
  };

  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  static Bags bags(const List& list, const std::int64_t* ids, const std::int64_t* offsets) {
    return {.ids = ids,
            .offsets = offsets,
            .weights = nullptr,
            .bags = std::ssize(list.offsets.values()) - 1};
  }

  std::deque<List> lists_;
  std::int64_t rows_;
};

template <typename T>
std::vector<T> from_device(Context& ctx, const T* from, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  ctx.device->copy_to_host(ctx, values.data(), from, count * static_cast<std::int64_t>(sizeof(T)));
  return values;
}

inline void expect_distinct_rows_case(Context& ctx,
                                      IdLists& lists,
                                      DistinctBuffers& there,
                                      const std::string& what) {
  const std::unique_ptr<Device> host = make_device({});
  DistinctBuffers here(*host);
  DistinctRows expected;
  DistinctRows got;
  const std::vector<Bags> host_lists = lists.host();
  const std::vector<Bags> device_lists = lists.place(ctx);
  const DistinctJob plain{
      .lists = host_lists, .rows = lists.rows(), .buffers = &here, .distinct = &expected};
  const DistinctJob tested{
      .lists = device_lists, .rows = lists.rows(), .buffers = &there, .distinct = &got};
  reference::find_distinct_rows(ctx, std::span(&plain, 1));
  find_distinct_rows(ctx, std::span(&tested, 1));
  ASSERT_EQ(got.num_rows, expected.num_rows) << what;
  ASSERT_EQ(got.num_ids, expected.num_ids) << what;
  const std::int64_t rows = got.num_rows;
  EXPECT_EQ(from_device(ctx, got.rows, rows), std::vector(expected.rows, expected.rows + rows))
      << what;
  EXPECT_EQ(from_device(ctx, got.places, got.num_ids),
            std::vector(expected.places, expected.places + got.num_ids))
      << what;
  EXPECT_EQ(std::vector(got.shifts.begin(), got.shifts.end()),
            std::vector(expected.shifts.begin(), expected.shifts.end()))
      << what;
}

/// Few and many rows, of which two are beyond what fits one word with an id's number.
inline void expect_distinct_rows_parity(Device& device) {
  Random random(11);
  run_on(device, [&](Context& ctx) {
    DistinctBuffers buffers(device);
    for (const std::int64_t rows :
         {std::int64_t{1}, std::int64_t{100}, std::int64_t{1} << 20, std::int64_t{1} << 32,
          (std::int64_t{1} << 40) + 3, std::int64_t{1} << 62}) {
      for (const std::int64_t ids : {0, 1, 5, 70, 900}) {
        for (const std::int64_t repeats : {1, 7}) {
          for (const std::int64_t lists : {0, 1, 3}) {
            IdLists one(random, lists, ids, rows, repeats);
            expect_distinct_rows_case(
                ctx, one, buffers, std::to_string(rows) + " rows, " + std::to_string(ids) + " ids");
          }
        }
      }
    }
    IdLists many(random, 2, 40000, 1 << 22, 3);
    expect_distinct_rows_case(ctx, many, buffers, "many");
    IdLists wide(random, 2, 40000, std::int64_t{1} << 55, 3);
    expect_distinct_rows_case(ctx, wide, buffers, "many, wide");
  });
}

inline void expect_slots_of_places_parity(Device& device) {
  Random random(12);
  run_on(device, [&](Context& ctx) {
    for (const std::int64_t count : {0, 1, 17, 40000}) {
      std::vector<std::int64_t> slots(777);
      for (std::int64_t& slot : slots) {
        slot = below(random, std::int64_t{1} << 40);
      }
      std::vector<std::int32_t> places(static_cast<std::size_t>(count));
      for (std::int32_t& place : places) {
        place = static_cast<std::int32_t>(below(random, 777));
      }
      Copied<std::int64_t> all(slots);
      Copied<std::int32_t> where(places);
      Copied<std::int64_t> out(std::vector<std::int64_t>(places.size(), -9));
      const PlaceSlots tested{.count = count,
                              .places = where.place(ctx),
                              .slots = all.place(ctx),
                              .out = out.place(ctx)};
      const PlaceSlots plain{
          .count = count, .places = where.host(), .slots = all.host(), .out = out.host()};
      slots_of_places(ctx, std::span(&tested, 1));
      reference::slots_of_places(ctx, std::span(&plain, 1));
      EXPECT_TRUE(out.same_bits(ctx)) << count;
    }
  });
}

/// All rows, some, few, none; and such that are not known.
inline void expect_slots_of_rows_parity(Device& device) {
  Random random(13);
  run_on(device, [&](Context& ctx) {
    for (const std::int64_t known : {0, 1, 60, 5000}) {
      for (const std::int64_t one_in : {1, 2, 50, 100000}) {
        std::set<std::int64_t> rows;
        while (std::ssize(rows) < known) {
          rows.insert(below(random, std::int64_t{1} << 34));
        }
        std::vector<std::int64_t> slots;
        std::vector<std::int64_t> some;
        for (const std::int64_t row : rows) {
          slots.push_back(below(random, 100000));
          if (below(random, one_in) == 0) {
            some.push_back(row + (random() % 10 == 0 ? 1 : 0));
          }
        }
        some.erase(std::unique(some.begin(), some.end()), some.end());
        Copied<std::int64_t> known_rows(std::vector(rows.begin(), rows.end()));
        Copied<std::int64_t> all(slots);
        Copied<std::int64_t> asked(some);
        Copied<std::int64_t> out(std::vector<std::int64_t>(some.size(), -9));
        RowSlots tested{.known = known, .count = std::ssize(some)};
        RowSlots plain = tested;
        tested.known_rows = known_rows.place(ctx);
        tested.slots = all.place(ctx);
        tested.rows = asked.place(ctx);
        tested.out = out.place(ctx);
        plain.known_rows = known_rows.host();
        plain.slots = all.host();
        plain.rows = asked.host();
        plain.out = out.host();
        slots_of_rows(ctx, std::span(&tested, 1));
        reference::slots_of_rows(ctx, std::span(&plain, 1));
        EXPECT_TRUE(out.same_bits(ctx)) << known << " rows, one in " << one_in;
      }
    }
  });
}

}  // namespace weft::kernels::test
