#include "services/manager/writes/sessions.hpp"

#include <charconv>

#include "core/checksum.hpp"
#include "core/random_number.hpp"
#include "services/manager/store/number_text.hpp"

namespace cenote::manager {

namespace {

constexpr std::size_t digits = 16;

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

/// The lower half of the random number of an empty session.
std::uint32_t empty_mark(std::uint64_t instance, std::uint32_t random) noexcept {
  const std::uint64_t seed = std::uint64_t{random} << 32U | 0x656d7074U;
  return static_cast<std::uint32_t>(checksum_of(&instance, sizeof instance, seed));
}

}  // namespace

session_name session_name::empty(std::uint64_t instance) {
  const auto random = static_cast<std::uint32_t>(random_number());
  return {.nonce = std::uint64_t{random} << 32U | empty_mark(instance, random)};
}

bool session_name::is_empty_of(std::uint64_t instance) const noexcept {
  const auto random = static_cast<std::uint32_t>(nonce >> 32U);
  return extent == 0 && static_cast<std::uint32_t>(nonce) == empty_mark(instance, random);
}

std::string session_name::text() const {
  return hex_digits(extent) + hex_digits(nonce);
}

std::optional<session_name> session_name::parse(std::string_view text) {
  if (text.size() != 2 * digits) return std::nullopt;
  const auto extent = number_of(text.substr(0, digits)), nonce = number_of(text.substr(digits));
  if (!extent || !nonce) return std::nullopt;
  return session_name{.extent = *extent, .nonce = *nonce};
}

std::chrono::seconds write_sessions::memory_rest(std::uint32_t wrote_at) noexcept {
  const std::uint32_t seconds = unix_seconds();
  const std::chrono::seconds age(seconds > wrote_at ? seconds - wrote_at : 0);
  return age < memory ? memory - age : std::chrono::seconds();
}

void write_sessions::open(std::uint64_t extent, const session_place& place, round_time deadline) {
  open_.emplace(extent, place);
  deadlines_.emplace(deadline, extent);
  blocks_ += place.blocks;
}

const session_place* write_sessions::find(std::uint64_t extent) const {
  const auto found = open_.find(extent);
  return found == open_.end() ? nullptr : &found->second;
}

void write_sessions::close(std::uint64_t extent, round_time deadline) {
  const auto found = open_.find(extent);
  if (found == open_.end()) return;
  blocks_ -= found->second.blocks;
  open_.erase(found);
  deadlines_.erase({deadline, extent});
}

void write_sessions::remember(std::uint64_t extent, const finished_session& session) {
  while (!finished_order_.empty()) {  // those of a minute ago go
    const auto oldest = finished_.find(finished_order_.front());
    if (oldest != finished_.end() && oldest->second.expiry > session.expiry - memory) break;
    if (oldest != finished_.end()) finished_.erase(oldest);
    finished_order_.pop_front();
  }
  if (finished_.insert_or_assign(extent, session).second) finished_order_.push_back(extent);
}

const finished_session* write_sessions::find_finished(std::uint64_t extent, round_time now) {
  const auto found = finished_.find(extent);
  return found == finished_.end() || found->second.expiry < now ? nullptr : &found->second;
}

std::optional<std::uint64_t> write_sessions::expired(round_time now) const {
  if (deadlines_.empty() || deadlines_.begin()->first > now) return std::nullopt;
  return deadlines_.begin()->second;
}

std::optional<round_time> write_sessions::next_deadline() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

}  // namespace cenote::manager
