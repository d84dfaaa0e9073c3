#include "tests/support/fake_io.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "core/checksum.hpp"
#include "tiers/nvme/request_queue.hpp"

namespace cenote::nvme {

void fake_io::fail_next(int error, std::optional<io_kind> kind) {
  add_fault({fault_kind::fail, error, kind});
}

void fake_io::cut_next(std::optional<io_kind> kind) {
  add_fault({fault_kind::cut, EIO, kind});
}

void fake_io::hold_next(std::optional<io_kind> kind) {
  add_fault({fault_kind::hold, 0, kind});
}

void fake_io::add_fault(fault next) {
  const std::lock_guard lock(mutex_);
  faults_.push_back(next);
}

std::optional<fake_io::fault> fake_io::take_fault(io_kind kind) {
  const auto found = std::ranges::find_if(faults_, [&](const fault& each) { return !each.only || *each.only == kind; });
  if (found == faults_.end()) return std::nullopt;
  const fault out = *found;
  faults_.erase(found);
  return out;
}

void fake_io::set_order(order wanted) {
  const std::lock_guard lock(mutex_);
  order_ = wanted;
}

void fake_io::submit(std::span<const io_request> batch) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    for (const io_request& each : batch) {
      const auto broken = take_fault(each.kind);
      (broken && broken->what == fault_kind::hold ? held_ : waiting_).push_back({each, broken});
    }
    if (pace_ == pace::stepped || std::exchange(stepping_, true)) return;
  }
  while (true) {
    step_all();
    const std::lock_guard lock(mutex_);
    if (!waiting_.empty()) continue;
    stepping_ = false;
    return;
  }
}

std::deque<fake_io::pending>::iterator fake_io::next() {
  if (waiting_.empty()) return waiting_.end();
  if (order_ == order::newest_first) return std::prev(waiting_.end());
  const auto read =
      std::ranges::find_if(waiting_, [](const pending& each) { return each.request.kind == io_kind::read; });
  return read != waiting_.end() ? read : waiting_.begin();
}

bool fake_io::step() {
  io_completion ended;
  {
    const std::lock_guard lock(mutex_);
    const auto one = next();
    if (one == waiting_.end()) return false;
    ended = transfer(*one);
    waiting_.erase(one);
  }
  done_({&ended, 1});
  return true;
}

std::size_t fake_io::step_all() {
  std::size_t steps = 0;
  while (step()) ++steps;
  return steps;
}

void fake_io::release() {
  std::vector<io_completion> ended;
  {
    const std::lock_guard lock(mutex_);
    for (const pending& each : held_) ended.push_back(transfer(each));
    held_.clear();
  }
  if (!ended.empty()) done_(ended);
}

void fake_io::stop() noexcept {
  std::vector<io_completion> cancelled;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    for (const pending& each : waiting_) cancelled.push_back({.tag = each.request.tag, .error = ECANCELED});
    waiting_.clear();
  }
  release();
  if (!cancelled.empty()) done_(cancelled);
}

std::size_t fake_io::under_way() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size() + held_.size();
}

io_completion fake_io::transfer(const pending& one) {
  const io_request& request = one.request;
  io_completion out{.tag = request.tag, .error = refusal_of(request, contents_.size())};
  if (out.error == 0 && one.broken) out.error = one.broken->error;
  if (out.error != 0 && (!one.broken || one.broken->what != fault_kind::cut)) return out;
  const std::size_t bytes = out.error == 0 ? request.memory.size() : request.memory.size() / 2;
  std::byte* stored = contents_.data() + request.offset;
  if (request.kind == io_kind::read) {
    std::memcpy(request.memory.data(), stored, bytes);
  } else {
    std::memcpy(stored, request.memory.data(), bytes);
  }
  if (out.error == 0 && request.checksum) out.checksum = checksum_of(request.memory);
  return out;
}

}  // namespace cenote::nvme
