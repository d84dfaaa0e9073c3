#include "memory/crash_guard.hpp"

#include <algorithm>

namespace cenote::memory {

std::uint64_t crash_guard::count_death() noexcept {
  const std::uint64_t session = page_->under_way.load(std::memory_order_acquire);
  if (session == 0) return 0;
  crash_page::count* place = &page_->counts[0];
  for (crash_page::count& each : page_->counts) {
    if (each.session.load(std::memory_order_relaxed) == session) {
      place = &each;
      break;
    }
    if (each.deaths.load(std::memory_order_relaxed) < place->deaths.load(std::memory_order_relaxed)) place = &each;
  }
  if (place->session.load(std::memory_order_relaxed) != session) {
    place->deaths.store(0, std::memory_order_release);
    place->session.store(session, std::memory_order_release);
  }
  // In this order a death between the two stores counts twice rather than not at all.
  place->deaths.fetch_add(1, std::memory_order_release);
  page_->under_way.store(0, std::memory_order_release);
  any_ = true;
  return session;
}

void crash_guard::forget(std::uint64_t session) noexcept {
  if (!any_) return;
  any_ = false;
  for (crash_page::count& each : page_->counts) {
    if (each.session.load(std::memory_order_relaxed) == session) {
      each.deaths.store(0, std::memory_order_release);
      each.session.store(0, std::memory_order_release);
    }
    any_ |= each.session.load(std::memory_order_relaxed) != 0;
  }
}

std::uint64_t crash_guard::deaths(std::uint64_t session) const noexcept {
  if (!any_ || session == 0) return 0;
  for (const crash_page::count& each : page_->counts) {
    if (each.session.load(std::memory_order_relaxed) == session) return each.deaths.load(std::memory_order_relaxed);
  }
  return 0;
}

std::vector<std::uint64_t> crash_guard::counted() const {
  std::vector<std::uint64_t> sessions;
  for (const crash_page::count& each : page_->counts) {
    if (const auto session = each.session.load(std::memory_order_relaxed); session != 0) sessions.push_back(session);
  }
  return sessions;
}

}  // namespace cenote::memory
