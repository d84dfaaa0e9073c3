// A table of the last numbers, each in the place that its number gives: hostile numbers cost nothing.
#include "services/indexer/feed/batch_run.hpp"

#include <algorithm>

namespace cenote::indexer {

void batch_run::forget() noexcept {
  exists_ = is_adopted_ = false;
  base_ = confirmed_ = next_ = 0;
}

void batch_run::begin(std::uint64_t first) noexcept {
  exists_ = true;
  is_adopted_ = false;
  base_ = confirmed_ = next_ = first;
}

void batch_run::adopt(std::uint64_t first) noexcept {
  begin(first);
  is_adopted_ = true;
}

void batch_run::append(std::uint64_t fingerprint) {
  if (records_.empty()) records_.resize(capacity_);
  records_[next_ % capacity_] = {next_, fingerprint};
  ++next_;  // no batch has the last number
}

void batch_run::confirm(std::uint64_t end) noexcept {
  confirmed_ = std::max(confirmed_, std::min(end, next_));
}

/// Places hold numbers of earlier runs, too: only those between base and next are of this one.
bool batch_run::has(std::uint64_t seq) const noexcept {
  return exists_ && seq >= base_ && seq < next_ && records_[seq % capacity_].seq == seq;
}

batch_run::likeness batch_run::compare(std::uint64_t seq, std::uint64_t fingerprint) const noexcept {
  if (!has(seq)) return likeness::unknown;
  return records_[seq % capacity_].fingerprint == fingerprint ? likeness::equal : likeness::different;
}

std::optional<std::uint64_t> batch_run::proof(bool reaches_back) const noexcept {
  if (!exists_ || next_ == base_) return std::nullopt;
  if (!reaches_back) return next_ - 1;
  const std::uint64_t wanted = confirmed_ > base_ ? confirmed_ - 1 : base_;
  return next_ - wanted > capacity_ ? next_ - capacity_ : wanted;
}

}  // namespace cenote::indexer
