/// Whether a job trains on with the data that its checkpoint was trained on, and where reading goes
/// on.
///
/// Data are the same where format, data.max_samples and the files' sizes and contents are (as far
/// as data/content.h looks at them) and, where both numbers are known, the samples of an epoch.
/// Files appended after the known ones, or another part of the same files, are accepted where the
/// samples consumed in the checkpoint's epoch are the first of the epoch in the new data too, in
/// the same order; why_order_differs() decides it. So are equal files in another order: another
/// seed or data.shuffle in the middle of an epoch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/checkpoint/manifest.h"
#include "weft/data/loader.h"
#include "weft/data/source.h"
#include "weft/spec/config.h"

namespace weft::train {

/// What --resume-data says of data that are not those of the checkpoint.
enum class ResumeData {
  kSame,       ///< refuse them
  kFromStart,  ///< read them from their first sample; weights and steps stay
  kInsist,     ///< read them from where the checkpoint stopped
};

/// One number for ranks to compare.
std::uint64_t fingerprint_of(const checkpoint::DataIdentity& identity);

/// Why the first `consumed` positions of an epoch have other samples in `own` than in `saved`,
/// whose files `own` begins with, as a clause; empty where they have the same ones in the same
/// order.
std::string why_order_differs(const checkpoint::DataIdentity& saved,
                              const checkpoint::DataIdentity& own,
                              std::int64_t consumed);

/// Where a job reads its training data from on, and what they are.
struct Reading {
  data::ReaderPosition start;
  checkpoint::DataIdentity data;         ///< for the checkpoints that the job will write
  std::vector<data::FileContent> files;  ///< of data, with names for messages
  bool same_data = true;  ///< as the checkpoint's, or nothing is known to the contrary
  bool complete = false;  ///< no step is left to train
  std::string note;       ///< for the log; empty = none
  std::string warning;    ///< likewise
};

/// Of a new job with the training data `source`, of which nothing has been read yet. Blocking;
/// reads as Source::content() does, and throws as it.
Reading begin_reading(const data::Source& source, const spec::Config& config);

/// What is resumed.
struct SavedReading {
  const checkpoint::Metadata& metadata;
  std::string name;  ///< what messages call the checkpoint
  ResumeData mode = ResumeData::kSame;
};

/// Throws Error(kCheckpoint) where the configuration has a `salt` and the checkpoint is of a build
/// that kept nothing of its data: those builds knew the key and did not heed it.
void check_salts(const SavedReading& saved, const spec::Config& config);

/// Makes `reading`, as begin_reading() has made it, that of a job which resumes. Looks at the
/// source again where files were appended.
/// Throws Error(kCheckpoint) for other data with ResumeData::kSame, naming the difference and the
/// three ways out, and for a position after the end of the data.
void resume_reading(Reading& reading,
                    const SavedReading& saved,
                    const data::Source& source,
                    const spec::Config& config);

/// What a resumed job has to say that has found no step to train, though that was not known before:
/// a note that its epochs are complete. Throws Error(kData) where other data are the reason.
std::string explain_no_steps(const Reading& reading, const spec::Config& config);

}  // namespace weft::train
