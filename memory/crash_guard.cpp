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
    shared_store(place->deaths, 0, std::memory_order_release, "guard.no_deaths_yet"_point);
    shared_store(place->session, session, std::memory_order_release, "guard.counted_session"_point);
  }
  // In this order a death between the two stores counts twice rather than not at all.
  shared_add(place->deaths, 1, std::memory_order_release, "guard.death"_point);
  shared_store(page_->under_way, 0, std::memory_order_release, "guard.death_counted"_point);
  any_ = true;
  return session;
}

void crash_guard::forget(std::uint64_t session) noexcept {
  if (!any_) return;
  any_ = false;
  for (crash_page::count& each : page_->counts) {
    if (each.session.load(std::memory_order_relaxed) == session) {
      shared_store(each.deaths, 0, std::memory_order_release, "guard.deaths_forgotten"_point);
      shared_store(each.session, 0, std::memory_order_release, "guard.session_forgotten"_point);
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
