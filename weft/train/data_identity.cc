#include "weft/train/data_identity.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/text.h"

namespace weft::train {
namespace {

using checkpoint::DataIdentity;

std::string format_name(spec::DataFormat format) {
  switch (format) {
    case spec::DataFormat::kCriteo:
      return "criteo";
    case spec::DataFormat::kMovielens:
      return "movielens";
    case spec::DataFormat::kSynthetic:
      return "synthetic";
    case spec::DataFormat::kWeft:
      return "weft";
  }
  fail(ErrorCode::kInternal, "data format {} has no name", static_cast<int>(format));
}

std::string count_files(std::size_t count) {
  return fmt::format("{} file{}", count, count == 1 ? "" : "s");
}

std::string count_samples(std::int64_t count) {
  return fmt::format("{} sample{}", format_count(count), count == 1 ? "" : "s");
}

/// The first of the files that `saved` knows which is another one in `content`, as a clause; empty
/// where content begins with all of them.
std::string find_other_file(const DataIdentity& saved,
                            const std::vector<data::FileContent>& content) {
  if (content.size() < saved.files.size()) {
    return fmt::format("there were {} and now there are {}", count_files(saved.files.size()),
                       content.size());
  }
  for (std::size_t i = 0; i < saved.files.size(); ++i) {
    const DataIdentity::File& known = saved.files[i];
    const data::FileContent& file = content[i];
    const std::string which = saved.files.size() == 1
                                  ? fmt::format("'{}'", file.name)
                                  : fmt::format("file {} ('{}')", i + 1, file.name);
    if (known.bytes != file.bytes) {
      return fmt::format("{} has {} bytes, not {}", which, file.bytes, known.bytes);
    }
    if (known.fingerprint != file.fingerprint) {
      return fmt::format("{} has other content", which);
    }
  }
  return "";
}

/// What a comparison has found.
struct Comparison {
  std::string other_files;  ///< why the known files are not the first ones; empty = they are
  bool equal = false;       ///< no file and no sample more or less
};

Comparison compare(const DataIdentity& saved, const Reading& reading, const data::Source& source) {
  const DataIdentity& own = reading.data;
  if (saved.format != own.format) {
    return {fmt::format("data.format was {} and is {}", saved.format, own.format), false};
  }
  const std::size_t known = saved.files.size();
  Comparison found;
  found.other_files = find_other_file(saved, known < own.files.size()
                                                 ? source.content(static_cast<std::int64_t>(known))
                                                 : reading.files);
  const bool samples_agree = saved.samples < 0 || own.samples < 0 || saved.samples == own.samples;
  found.equal = found.other_files.empty() && saved.files.size() == own.files.size() &&
                saved.max_samples == own.max_samples && samples_agree;
  return found;
}

/// How many samples an epoch of `own` has, as far as the checkpoint has found that out: `own`
/// begins with the files that `saved` knows.
void learn_samples(const DataIdentity& saved, DataIdentity& own) {
  if (own.samples >= 0 || saved.samples < 0) {
    return;
  }
  const bool met_the_end = saved.max_samples == 0 || saved.samples < saved.max_samples;
  if (0 < own.max_samples && own.max_samples <= saved.samples) {
    own.samples = own.max_samples;
  } else if (met_the_end && own.files.size() == saved.files.size()) {
    own.samples = saved.samples;
  }
}

/// What has changed about known files, for messages.
std::string describe_change(const DataIdentity& saved, const DataIdentity& own) {
  if (own.files.size() > saved.files.size()) {
    const std::size_t more = own.files.size() - saved.files.size();
    return fmt::format("{} {} been appended (the checkpoint knows {})", count_files(more),
                       more == 1 ? "has" : "have", saved.files.size());
  }
  if (saved.samples >= 0 && own.samples >= 0) {
    return fmt::format("an epoch has {} where it had {}", count_samples(own.samples),
                       format_count(saved.samples));
  }
  return fmt::format("data.max_samples was {} and is {}", saved.max_samples, own.max_samples);
}

/// Whether windows of `window` samples that the first `consumed` ones lie in are whole.
bool whole_windows(std::int64_t samples, std::int64_t window, std::int64_t consumed) {
  return consumed <= samples / window * window;
}

/// The most samples that an epoch can have; none where that is not known.
std::optional<std::int64_t> bound_of(const DataIdentity& identity) {
  if (identity.samples >= 0) {
    return identity.samples;
  }
  return identity.max_samples > 0 ? std::optional(identity.max_samples) : std::nullopt;
}

std::string three_ways(const data::ReaderPosition& at) {
  return fmt::format(
      "Three ways out: name the data that the checkpoint was trained on; --resume-data from-start "
      "trains on these from their first sample and keeps weights and steps; --resume-data insist "
      "goes on in these at sample {} of epoch {}",
      at.sample, at.epoch);
}

/// Whether the configuration's steps or epochs are done at that point.
bool is_complete(const checkpoint::Metadata& saved,
                 const Reading& reading,
                 const spec::Config& config) {
  if (config.train.steps > 0) {
    return saved.step >= config.train.steps;
  }
  const bool at_end = reading.data.samples >= 0 && reading.start.sample >= reading.data.samples;
  return reading.same_data && (reading.start.epoch >= config.train.epochs ||
                               (reading.start.epoch + 1 == config.train.epochs && at_end));
}

std::string complete_note(std::int64_t step, const spec::Config& config) {
  return config.train.steps > 0
             ? fmt::format(
                   "resume: the job is complete: train.steps is {} and the checkpoint is of step "
                   "{}; nothing is left to train (train.steps counts from the job's beginning)",
                   config.train.steps, step)
             : fmt::format(
                   "resume: the job is complete: train.epochs is {} and the data have been read to "
                   "their end; nothing is left to train",
                   config.train.epochs);
}

/// Data that begin with what the checkpoint knows and are not the same: accepts them, or says why
/// not.
std::string accept_change(const DataIdentity& saved, const spec::Config& config, Reading& reading) {
  const data::ReaderPosition at = reading.start;
  const std::string change = describe_change(saved, reading.data);
  const std::string why = why_order_differs(saved, reading.data, at.sample);
  if (why.empty()) {
    reading.note = fmt::format(
        "resume: {}; the samples consumed in epoch {} are its first ones still, and reading goes "
        "on after them, at sample {}",
        change, at.epoch, at.sample);
  } else if (at.sample == saved.samples &&
             (config.train.steps > 0 || at.epoch + 1 < config.train.epochs)) {
    reading.start = {at.epoch + 1, 0};
    reading.note = fmt::format("resume: {}; epoch {} was complete, and epoch {} reads all of it",
                               change, at.epoch, at.epoch + 1);
  } else {
    return fmt::format("{}, and with that the order of the {} already consumed changes: {}", change,
                       count_samples(at.sample), why);
  }
  if (config.data.eval_fraction > 0 && config.data.eval_path.empty()) {
    reading.note +=
        ". The evaluation part (data.eval_fraction) is another one: samples of the former may now "
        "be trained on";
  }
  return "";
}

/// A position after the end would train nothing, whatever the mode.
void check_position(const Reading& reading, const std::string& name) {
  const std::optional<std::int64_t> most = bound_of(reading.data);
  if (most && reading.start.sample > *most) {
    fail(ErrorCode::kCheckpoint,
         "resume from {}: it stopped at sample {} of epoch {} and the data have {}; nothing would "
         "be trained. Name the data that it was trained on, or begin these at their start with "
         "--resume-data from-start",
         name, reading.start.sample, reading.start.epoch, count_samples(*most));
  }
}

/// A checkpoint that does not know its data.
void accept_unknown(const checkpoint::Metadata& saved, ResumeData mode, Reading& reading) {
  if (mode == ResumeData::kFromStart) {
    reading.start = {};
  }
  reading.warning = fmt::format(
      "resume: the checkpoint was written by Weft {}, which kept nothing of the data in it: "
      "whether these are the ones that it was trained on is not known; reading begins at sample "
      "{} of epoch {}",
      saved.weft_version, reading.start.sample, reading.start.epoch);
}

/// Other data, for the reason given.
void accept_other(const std::string& reason, const SavedReading& saved, Reading& reading) {
  reading.same_data = false;
  switch (saved.mode) {
    case ResumeData::kSame:
      fail(ErrorCode::kCheckpoint,
           "resume from {}: the data are not those that the checkpoint was trained on: {}. {}",
           saved.name, reason, three_ways(reading.start));
    case ResumeData::kFromStart:
      reading.start = {};
      reading.note = fmt::format(
          "resume: other data ({}), read from their first sample; weights and steps stay", reason);
      return;
    case ResumeData::kInsist:
      reading.warning = fmt::format(
          "resume: other data, as insisted on ({}): reading goes on at sample {} of epoch {}, and "
          "what lies before it in this epoch is not trained on",
          reason, reading.start.sample, reading.start.epoch);
      return;
  }
}

/// A checkpoint that knows its data.
void take_over(const DataIdentity& known,
               const SavedReading& saved,
               const data::Source& source,
               const spec::Config& config,
               Reading& reading) {
  const Comparison found = compare(known, reading, source);
  if (found.other_files.empty()) {
    learn_samples(known, reading.data);
  }
  if (found.equal) {
    const std::string why = why_order_differs(known, reading.data, reading.start.sample);
    const bool all = reading.start.sample == known.samples;  // in whatever order
    if (!why.empty() && !all) {
      accept_other(fmt::format("in their order the first {} of epoch {} are not those consumed: {}",
                               count_samples(reading.start.sample), reading.start.epoch, why),
                   saved, reading);
    }
    return;
  }
  std::string reason = found.other_files;
  if (reason.empty()) {
    reason = saved.mode == ResumeData::kFromStart ? describe_change(known, reading.data)
                                                  : accept_change(known, config, reading);
  }
  if (!reason.empty()) {
    accept_other(reason, saved, reading);
  }
}

}  // namespace

void check_salts(const SavedReading& saved, const spec::Config& config) {
  if (saved.metadata.data) {
    return;
  }
  for (const spec::SparseFeature& feature : config.sparse_features) {
    if (feature.mapping == spec::IdMapping::kHash && !feature.salt.empty() &&
        feature.salt != feature.table) {
      fail(ErrorCode::kCheckpoint,
           "resume from {}: it was written by Weft {}, which did not heed salts: feature {} was "
           "trained on the rows of its table's name, and salt: {} would give it others. Remove the "
           "key to go on with the rows that were trained",
           saved.name, saved.metadata.weft_version, feature.name, feature.salt);
    }
  }
}

Reading begin_reading(const data::Source& source, const spec::Config& config) {
  Reading reading;
  reading.files = source.content(std::numeric_limits<std::int64_t>::max());
  DataIdentity& identity = reading.data;
  identity.format = format_name(config.data.format);
  for (const data::FileContent& file : reading.files) {
    identity.files.push_back({file.bytes, file.fingerprint});
  }
  identity.max_samples = config.data.max_samples;
  identity.samples = source.random_access() ? source.size() : -1;
  identity.window =
      data::shuffle_window(source, data::LoaderOptions::train(config, 0, 1, config.batch_size));
  identity.shuffle_seed = config.seed;
  return reading;
}

std::uint64_t fingerprint_of(const checkpoint::DataIdentity& identity) {
  std::uint64_t hash = hash_string(identity.format);
  const auto add = [&hash](std::int64_t value) {
    hash = hash_combine(hash, static_cast<std::uint64_t>(value));
  };
  add(identity.max_samples);
  add(identity.samples);
  for (const DataIdentity::File& file : identity.files) {
    add(file.bytes);
    hash = hash_combine(hash, file.fingerprint);
  }
  return hash;
}

/// Position -> sample is a permutation of each window of an epoch, keyed by seed, epoch and number
/// of the window, and of as many samples as the window has: the last one of an epoch has fewer.
std::string why_order_differs(const checkpoint::DataIdentity& saved,
                              const checkpoint::DataIdentity& own,
                              std::int64_t consumed) {
  const std::optional<std::int64_t> most = bound_of(own);
  if (most && *most < consumed) {
    return fmt::format("an epoch has {} at most", count_samples(*most));
  }
  const bool in_order = saved.window == 0 && own.window == 0;
  if (consumed == 0 || in_order) {
    return "";
  }
  if (saved.window != own.window) {
    return fmt::format("data.shuffle mixed {} samples at a time and now {}",
                       format_count(std::max<std::int64_t>(1, saved.window)),
                       format_count(std::max<std::int64_t>(1, own.window)));
  }
  if (saved.shuffle_seed != own.shuffle_seed) {
    return fmt::format("seed was {} and is {}", saved.shuffle_seed, own.shuffle_seed);
  }
  if (saved.samples >= 0 && saved.samples == own.samples) {
    return "";
  }
  // Where the number of samples is not known, all windows that were consumed had their size.
  for (const DataIdentity* one : {&saved, &own}) {
    const std::int64_t samples = one == &saved ? saved.samples : most.value_or(-1);
    if (samples >= 0 && !whole_windows(samples, own.window, consumed)) {
      return fmt::format(
          "data.shuffle mixes {} samples at a time, and the last ones of {} are fewer",
          format_count(own.window), format_count(samples));
    }
  }
  return "";
}

void resume_reading(Reading& reading,
                    const SavedReading& saved,
                    const data::Source& source,
                    const spec::Config& config) {
  const checkpoint::Metadata& metadata = saved.metadata;
  reading.start = {metadata.epoch, metadata.sample};
  if (config.train.steps > 0 && metadata.step >= config.train.steps) {
    // Nothing is read any more, so the data of this job stay those of the checkpoint.
    reading.complete = true;
    reading.note = complete_note(metadata.step, config);
    reading.data = metadata.data.value_or(reading.data);
    return;
  }
  if (metadata.data) {
    take_over(*metadata.data, saved, source, config, reading);
  } else {
    accept_unknown(metadata, saved.mode, reading);
  }
  check_position(reading, saved.name);
  if (is_complete(metadata, reading, config)) {
    reading.complete = true;
    reading.note = complete_note(metadata.step, config);
  }
}

std::string explain_no_steps(const Reading& reading, const spec::Config& config) {
  if (!reading.same_data && !reading.complete) {
    fail(ErrorCode::kData,
         "the resumed job trained nothing: it went on at sample {} of epoch {}, where these data "
         "end, and train.epochs is {}; raise train.epochs, or begin them at their start with "
         "--resume-data from-start",
         reading.start.sample, reading.start.epoch, config.train.epochs);
  }
  return complete_note(0, config);
}

}  // namespace weft::train
