#include "tiers/nvme/catalog_writer.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace cenote::nvme {

namespace {

// More in one write would not be faster, and RocksDB's buffer could grow beyond its bound by one write.
constexpr std::size_t changes_per_write = 1024;
constexpr auto retry_pause = std::chrono::seconds(2);  // while removals are pending

}  // namespace

catalog_writer::catalog_writer(catalog& into, pending_removals& pending, std::optional<removal_log> log, callback done,
                               std::optional<sequence_mark> mark, exception_callback on_exception)
    : catalog_(into),
      pending_(pending),
      done_(std::move(done)),
      log_(log),
      mark_(mark),
      logged_(log && pending.size() > 0),
      failing_(into.waits_for_space()) {
  thread_ = std::thread([this, heard = std::move(on_exception)] {
    ::pthread_setname_np(::pthread_self(), "cenote-catalog");
    run_steps([this] { return step(); }, heard);
  });
}

catalog_writer::~catalog_writer() {
  stop();
}

void catalog_writer::submit(std::vector<catalog_change> changes, std::uint64_t tag) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    waiting_.push_back({std::move(changes), tag});
  }
  wake_.notify_one();
}

void catalog_writer::remember(const instance_spec& spec) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    specs_.push_back(spec);
  }
  wake_.notify_one();
}

void catalog_writer::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

/// One write and what belongs to it; false after the last. What a step has taken is done by the next one, if it did
/// not get there.
bool catalog_writer::step() {
  const bool more = !tags_.empty() || take_waiting();
  if (!more) marked_at_ = {};
  note_sequence();
  if (!more) return false;
  if (!tags_.empty() || pending_.size() > 0) {
    const save_status status = write();
    if (!tags_.empty()) done_(tags_, status);
    tags_.clear();
  }
  write_specs();
  return true;
}

/// What is not taken comes again behind a write that was: without its name nobody could clear an instance.
void catalog_writer::write_specs() {
  if (!failing_) std::ranges::move(std::exchange(specs_owed_, {}), std::back_inserter(specs_now_));
  for (instance_spec& spec : std::exchange(specs_now_, {})) {
    if (failing_ || !catalog_.put_instance(spec)) specs_owed_.push_back(std::move(spec));
  }
  std::ranges::sort(specs_owed_, {}, identity_of);
  const auto twice = std::ranges::unique(specs_owed_);
  specs_owed_.erase(twice.begin(), twice.end());
}

/// A mark that cannot be written stays behind, which hides a loss but invents none.
void catalog_writer::note_sequence() {
  const auto now = std::chrono::steady_clock::now();
  if (!mark_ || failing_ || now - marked_at_ < retry_pause) return;
  const std::uint64_t sequence = catalog_.sequence();
  if (sequence == marked_ || !mark_->store(sequence)) return;
  marked_ = sequence;
  marked_at_ = now;
}

/// What is pending goes first, so that a block that is stored again after its removal stays.
save_status catalog_writer::write() {
  const auto owed = pending_.look();
  std::vector<catalog_change> with_owed = owed.what.changes();
  const bool owes = !with_owed.empty();
  if (owes) std::ranges::copy(changes_, std::back_inserter(with_owed));
  const std::vector<catalog_change>& all = owes ? with_owed : changes_;
  if (failing_) (void)catalog_.recover();  // what is still wrong is said by the write
  save_status status;
  // Synced before the log forgets it: after a power cut the log is all that is left.
  status.written = all.empty() ? result<void>{} : catalog_.apply(all, owes || logged_);
  failing_ = !status.written;
  if (!failing_) {
    settle(owed.version);
    return status;
  }
  removal_set missed;
  for (const catalog_change& each : changes_) missed.add(each);
  pending_.add(missed);
  status.removals_hold = keep_removals() || missed.empty();
  return status;
}

bool catalog_writer::keep_removals() {
  const auto owed = pending_.look();
  if (owed.what.empty() || logged_version_ == owed.version) return true;
  if (!log_ || !log_->store(owed.what)) return false;
  logged_ = true;
  logged_version_ = owed.version;
  return true;
}

/// The catalog holds nothing any more that it should not. A log that cannot be emptied makes the next start forget the
/// same blocks once more, which costs misses.
void catalog_writer::settle(std::uint64_t version) {
  pending_.settle(version);
  if (!logged_ || pending_.size() > 0) return;
  logged_ = !log_->store({});
  logged_version_.reset();
}

bool catalog_writer::take_waiting() {
  changes_.clear();
  std::unique_lock lock(mutex_);
  const auto called = [&] { return stopping_ || !waiting_.empty() || !specs_.empty(); };
  const bool ahead = mark_ && !failing_ && catalog_.sequence() != marked_;
  if (pending_.size() == 0 && !ahead) {
    wake_.wait(lock, called);
  } else if (!std::exchange(first_look_, false)) {
    wake_.wait_for(lock, retry_pause, called);
  }
  while (!waiting_.empty()) {
    submission& next = waiting_.front();
    // A submission is never cut in two, however large.
    if (!tags_.empty() && changes_.size() + next.changes.size() > changes_per_write) break;
    std::ranges::copy(next.changes, std::back_inserter(changes_));
    tags_.push_back(next.tag);
    waiting_.pop_front();
  }
  if (waiting_.empty()) std::ranges::move(std::exchange(specs_, {}), std::back_inserter(specs_now_));
  return !stopping_ || !tags_.empty() || !specs_now_.empty();
}

}  // namespace cenote::nvme
