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

Lineup::Lineup(std::int64_t batches) : batches_(at(batches)), ends_(at(batches)) {
}

Lineup::Uses& Lineup::uses(Resource resource, std::int64_t batch) {
  const auto index = static_cast<std::size_t>(resource);
  return is_of_job(resource) ? job_[index] : batches_[at(batch)][index - kJobResources];
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
    const Uses& before = uses(resource, stage.batch);
    wait(on, before.written);
    if (writes) {
      wait(on, before.read);
    }
  }
  on.enqueue(body);
  const Event end = on.record();
  for (std::size_t i = 0; i < kResources; ++i) {
    const Resource resource = resource_at(i);
    if (accesses.writes.contains(resource)) {
      uses(resource, stage.batch) = {.written = end, .read = {}};
    } else if (accesses.reads.contains(resource)) {
      note(uses(resource, stage.batch).read, end);
    }
  }
  if (touches_batch(accesses)) {
    note(ends_[at(stage.batch)], end);
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
  for (const Event& end : ends_[at(batch)]) {
    try {
      if (end.stream != nullptr) {
        end.stream->wait_on_host(end);
      }
    } catch (...) {
      first = first == nullptr ? std::current_exception() : first;
    }
  }
  if (first != nullptr) {
    std::rethrow_exception(first);
  }
}

void Lineup::wait_for(Resource resource) {
  WEFT_CHECK(is_of_job(resource), "'{}' is of a batch", to_string(resource));
  const Event& written = job_[static_cast<std::size_t>(resource)].written;
  if (written.stream != nullptr) {
    written.stream->wait_on_host(written);
  }
}

}  // namespace weft::pipeline
