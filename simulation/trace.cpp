#include "simulation/trace.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/key_sample.hpp"
#include "core/random_number.hpp"

namespace cenote::simulation {

namespace {

constexpr std::size_t least_places = 1024;

/// Of places, so that identities that all have the same cannot be made. Drawn once.
std::uint64_t salt() noexcept {
  static const std::uint64_t drawn = random_number();
  return drawn;
}

/// The places at which an identity is looked for, one after the other; there is a power of two of them. Identities in a
/// row begin in places in a row, as most are; what collides goes on in a step of its own, or whole rows would pile up.
class search {
 public:
  search(std::uint64_t id, std::size_t places) noexcept : id_(id), mask_(places - 1) {
    const std::uint64_t above = id >> std::countr_zero(places);
    place_ = (id ^ mixed_bits(above ^ salt())) & mask_;
  }
  [[nodiscard]] std::size_t place() const noexcept { return place_; }
  void next() noexcept { place_ = (place_ + (mixed_bits(id_ ^ salt()) | 1)) & mask_; }

 private:
  std::uint64_t id_;
  std::size_t mask_;
  std::size_t place_ = 0;
};

}  // namespace

trace::trace(std::span<const arrival> requests, const huge_vector<std::uint64_t>& ids, std::uint64_t block_tokens)
    : block_tokens_(block_tokens) {
  requests_.reserve(requests.size());
  std::size_t first = 0;
  for (const arrival& each : requests) {
    add_entry(each, first);
    first += each.count;
  }
  blocks_.reserve(ids.size());
  identities_.reserve(ids.size());
  place_all(std::bit_ceil(std::max(least_places, ids.size())));  // grows once at most
  for (const std::uint64_t id : ids) blocks_.push_back(number_of(id));
}

trace::trace(numbered parts)
    : blocks_(std::move(parts.blocks)), identities_(std::move(parts.identities)), block_tokens_(parts.block_tokens) {
  requests_.reserve(parts.requests.size());
  std::size_t first = 0;
  for (const arrival& each : parts.requests) {
    add_entry(each, first);
    first += each.count;
  }
}

void trace::add(std::uint64_t time_ms, std::uint64_t tokens, std::span<const std::uint64_t> ids) {
  add({.time_ms = time_ms, .tokens = tokens}, ids);
}

void trace::add(const arrival& request, std::span<const std::uint64_t> ids) {
  arrival whole = request;
  whole.count = ids.size();
  add_entry(whole, blocks_.size());
  for (const std::uint64_t id : ids) blocks_.push_back(number_of(id));
}

void trace::add_entry(const arrival& request, std::size_t first) {
  const std::uint64_t time_ms = std::min(request.time_ms, most_ms);
  requests_.push_back({.first = first,
                       .count = request.count,
                       .tokens = request.tokens,
                       .time_ms = requests_.empty() ? time_ms : std::max(time_ms, requests_.back().time_ms),
                       .partial = request.count * block_tokens_ > request.tokens,
                       .access = request.access,
                       .instance = request.instance,
                       .session = request.session,
                       .engine_blocks = std::min(request.engine_blocks, static_cast<std::uint32_t>(request.count))});
  stores_all_ = stores_all_ && request.access == chain_access::both;
  if (request.access == chain_access::write) return;
  tokens_ += request.tokens;
  asked_blocks_ += request.count;
}

trace::arrival trace::arrival_of(const entry& request) noexcept {
  return {.time_ms = request.time_ms,
          .tokens = request.tokens,
          .count = request.count,
          .access = request.access,
          .instance = request.instance,
          .session = request.session,
          .engine_blocks = request.engine_blocks};
}

std::uint32_t trace::number_of(std::uint64_t id) {
  if (identities_.size() * 2 >= numbers_.size()) {
    place_all(std::max(least_places, std::bit_ceil(identities_.size() * 2 + 1)));
  }
  for (search at(id, numbers_.size());; at.next()) {
    std::uint32_t& here = numbers_[at.place()];
    if (here == 0) {
      identities_.push_back(id);
      here = distinct();
      return here - 1;
    }
    if (identities_[here - 1] == id) return here - 1;
  }
}

void trace::place_all(std::size_t places) {
  numbers_.assign(places, 0);
  for (std::uint32_t number = 0; number < distinct(); ++number) {
    search at(identities_[number], places);
    while (numbers_[at.place()] != 0) at.next();
    numbers_[at.place()] = number + 1;
  }
}

std::vector<std::uint64_t> trace::ids(const entry& request) const {
  std::vector<std::uint64_t> ids;
  ids.reserve(request.count);
  for (const std::uint32_t block : blocks(request)) ids.push_back(identities_[block]);
  return ids;
}

trace trace::first(std::size_t count) const {
  trace made(block_tokens_);
  for (const entry& each : requests().first(std::min(count, requests_.size()))) {
    made.add(arrival_of(each), ids(each));
  }
  return made;
}

trace trace::full_blocks(std::size_t count) const {
  trace made(block_tokens_);
  for (const entry& each : requests().first(std::min(count, requests_.size()))) {
    const std::size_t full = std::min<std::uint64_t>(each.count, each.tokens / block_tokens_);
    made.add(arrival_of(each), std::span<const std::uint64_t>(ids(each)).first(full));
  }
  return made;
}

trace trace::at_speed(double factor) const {
  trace made = *this;
  for (entry& each : made.requests_) {
    const double scaled = factor > 0 ? static_cast<double>(each.time_ms) / factor : 0;
    each.time_ms = static_cast<std::uint64_t>(std::min(scaled, static_cast<double>(most_ms)));
  }
  return made;
}

std::vector<std::uint32_t> trace::next_uses() const {
  constexpr std::uint32_t never = ~std::uint32_t{0};
  std::vector<std::uint32_t> next(blocks_.size());
  std::vector<std::uint32_t> seen(distinct(), never);
  for (std::size_t at = blocks_.size(); at-- > 0;) {
    next[at] = seen[blocks_[at]];
    seen[blocks_[at]] = static_cast<std::uint32_t>(at);
  }
  return next;
}

}  // namespace cenote::simulation
