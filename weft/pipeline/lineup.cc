#include "weft/pipeline/lineup.h"

#include <algorithm>
#include <exception>

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft::pipeline {
namespace {

constexpr Resource resource_at(std::size_t index) {
  return static_cast<Resource>(index);
}

/// Whether a stage with these accesses uses something of a batch.
bool touches_batch(const Accesses& accesses) {
  for (std::size_t i = kJobResources; i < kResources; ++i) {
    if (accesses.reads.contains(resource_at(i)) || accesses.writes.contains(resource_at(i))) {
      return true;
    }
  }
  return false;
}

}  // namespace

Lineup::Lineup(std::int64_t batches, std::int64_t cuts) : batches_(at(batches)) {
  for (BatchUses& batch : batches_) {
    batch.cuts.resize(at(cuts));
  }
}

template <typename Visit>
void Lineup::for_uses(Resource resource, const StageOf& stage, const Visit& visit) {
  const auto index = static_cast<std::size_t>(resource);
  if (is_of_job(resource)) {
    visit(job_[index]);
  } else if (!is_of_cut(resource)) {
    visit(batches_[at(stage.batch)].whole[index - kJobResources]);
  } else {
    std::vector<std::array<Uses, kCutResources>>& cuts = batches_[at(stage.batch)].cuts;
    const std::size_t of_cut = index - (kResources - kCutResources);
    if (is_of_cut(stage.part)) {
      visit(cuts[at(stage.cut)][of_cut]);
      return;
    }
    for (std::array<Uses, kCutResources>& cut : cuts) {
      visit(cut[of_cut]);
    }
  }
}

bool Lineup::is_left_out(StepPart part, Resource resource) const {
  return std::any_of(left_out_.begin(), left_out_.end(), [&](const LeftOut& access) {
    return access.part == part && access.resource == resource;
  });
}

/// Takes the place of an earlier event of the same stream.
void Lineup::note(Events& events, const Event& event) {
  for (Event& known : events) {
    if (known.stream == nullptr || known.stream == event.stream) {
      known = event;
      return;
    }
  }
  WEFT_CHECK(false, "stages on more than {} streams", events.size());
}

void Lineup::wait(Stream& on, const Event& event) {
  if (event.stream != nullptr && event.stream != &on) {
    on.wait(event);
  }
}

void Lineup::wait(Stream& on, const Events& events) {
  for (const Event& event : events) {
    wait(on, event);
  }
}

void Lineup::add(Stream& on, const Stage& body, const StageOf& stage) {
  const Accesses accesses = accesses_of(stage.part);
  for (std::size_t i = 0; i < kResources; ++i) {
    const Resource resource = resource_at(i);
    const bool writes = accesses.writes.contains(resource);
    if ((!writes && !accesses.reads.contains(resource)) || is_left_out(stage.part, resource)) {
      continue;
    }
    for_uses(resource, stage, [&](const Uses& before) {
      wait(on, before.written);
      if (writes) {
        wait(on, before.read);
      }
    });
  }
  on.enqueue(body);
  const Event end = on.record();
  for (std::size_t i = 0; i < kResources; ++i) {
    const Resource resource = resource_at(i);
    if (accesses.writes.contains(resource)) {
      for_uses(resource, stage, [&](Uses& use) { use = {.written = end, .read = {}}; });
    } else if (accesses.reads.contains(resource)) {
      for_uses(resource, stage, [&](Uses& use) { note(use.read, end); });
    }
  }
  if (touches_batch(accesses)) {
    note(batches_[at(stage.batch)].ends, end);
  }
}

void Lineup::add_exclusive(Stream& on, const Stage& body) {
  for (const Uses& before : job_) {
    wait(on, before.written);
    wait(on, before.read);
  }
  on.enqueue(body);
  const Event end = on.record();
  for (Uses& use : job_) {
    use = {.written = end, .read = {}};
  }
}

const Stream* Lineup::writer_of(Resource resource) const {
  WEFT_CHECK(is_of_job(resource), "'{}' is of a batch", to_string(resource));
  return job_[static_cast<std::size_t>(resource)].written.stream;
}

void Lineup::wait_for_batch(std::int64_t batch) {
  std::exception_ptr first;
  for (const Event& end : batches_[at(batch)].ends) {
    try {
      wait_on_host(end);
    } catch (...) {
      first = first == nullptr ? std::current_exception() : first;
    }
  }
  if (first != nullptr) {
    std::rethrow_exception(first);
  }
}

void Lineup::wait_on_host(const Event& event) {
  if (event.stream != nullptr) {
    event.stream->wait_on_host(event);
  }
}

void Lineup::wait_for(Resource resource) {
  WEFT_CHECK(is_of_job(resource), "'{}' is of a batch", to_string(resource));
  wait_on_host(job_[static_cast<std::size_t>(resource)].written);
}

void Lineup::wait_for(Resource resource, std::int64_t batch) {
  WEFT_CHECK(!is_of_job(resource), "'{}' is of the job", to_string(resource));
  for_uses(resource, {.part = StepPart::kPrepare, .batch = batch},
           [](const Uses& uses) { wait_on_host(uses.written); });
}

bool Lineup::is_being_written(Resource resource, const StageOf& stage) const {
  WEFT_CHECK(is_of_cut(resource), "'{}' is of no micro-batch", to_string(resource));
  const std::size_t of_cut = static_cast<std::size_t>(resource) - (kResources - kCutResources);
  const Event& written = batches_[at(stage.batch)].cuts[at(stage.cut)][of_cut].written;
  return written.stream != nullptr && !written.stream->has_reached(written);
}

}  // namespace weft::pipeline
