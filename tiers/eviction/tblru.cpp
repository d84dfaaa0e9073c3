#include "tiers/eviction/tblru.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace cenote::eviction {

namespace {

// Tenths of a second.
constexpr std::uint32_t first_bonus = 1'200;
constexpr std::uint32_t smallest_bonus = 50;
constexpr std::uint32_t smallest_delay = 10;
constexpr std::uint32_t tip_lifetime = 15'360;
constexpr std::size_t most_tips = 65'536;
constexpr int fewest_later_turns = 4;  // of 64 requests

constexpr std::uint32_t most_rank = 3;
constexpr std::uint64_t child_spread = 0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio

template <std::size_t... I>
std::array<block_list, sizeof...(I)> make_lists(block_links& links, std::index_sequence<I...> /*indices*/) {
  return {((void)I, block_list(links))...};
}

/// The full blocks of a request, all of them.
std::span<const std::uint64_t> session_of(const request& request) noexcept {
  return request.whole.empty() ? request.ids.first(request.full()) : request.whole;
}

}  // namespace

tblru::tblru(block_links& links, partial_blocks partial) noexcept
    : admits_partial_(partial),
      lists_(make_lists(links, std::make_index_sequence<class_count>())),
      delay_(first_bonus) {
  tips_.bound(most_tips);
}

std::uint32_t tblru::begin_request(const request& request, std::uint32_t time) {
  if (!request.ids.empty()) clock_.tick(time);  // or touches of a client without blocks would make time run
  const std::uint32_t now = clock_.at(time);
  while (!tips_.empty() && now - tips_.oldest()->note.time > tip_lifetime) tips_.drop_oldest();
  const std::uint32_t turn = find_turn(request, now);
  if (!request.ids.empty()) later_turns_ = later_turns_ << 1U | (turn > 1 ? 1U : 0U);
  resume_request(turn, request.resident.empty() ? std::nullopt : std::optional(request.resident.back()));
  if (request.partial && !request.ids.empty()) partial_ = request.ids.back();
  leave_tip(request, turn, now);
  const std::size_t followed = std::min(request.resident.size(), request.full() - (request.full() > 0 ? 1 : 0));
  for (std::size_t at = 0; at < followed; ++at) note_child(request.resident[at], request.ids[at + 1]);
  return turn;
}

void tblru::resume_request(std::uint32_t request_context, std::optional<std::uint32_t> parent) {
  chain_ = true;
  stopped_ = false;
  partial_.reset();
  parent_ = parent.value_or(none);
  first_turn_ = request_context <= 1;
  rank_ = static_cast<std::uint8_t>(std::clamp<std::uint32_t>(request_context, 1, class_count) - 1);
}

bool tblru::sees_sessions() const noexcept {
  return std::popcount(later_turns_) >= fewest_later_turns;
}

bool tblru::should_admit(std::uint64_t id, std::uint32_t now) {
  if (stopped_ || (partial_ == id && admits_partial_ == partial_blocks::refused)) return false;
  if (!first_turn_ || size_ < capacity_ || size_ == 0 || !sees_sessions()) return true;
  const std::uint64_t age = clock_.at(now) - states_[*victim()].touched;
  stopped_ = age * 4 < std::uint64_t{bonus()} * 3;
  return !stopped_;
}

void tblru::insert(std::uint32_t block, std::uint64_t id, std::uint32_t now) {
  if (parent_ != none && partial_ != id) note_child(parent_, id);
  states_.make(block) = {};
  if (chain_) parent_ = block;
  ++size_;
  place(block, rank_, now);
}

void tblru::insert_with_history(std::uint32_t block, std::uint32_t then, std::uint32_t uses) {
  const std::uint32_t rank = std::clamp<std::uint32_t>(uses, 1, class_count) - 1;
  state& of = states_.make(block);
  of = {};
  of.touched = clock_.at(then);
  of.rank = of.earned = rank & most_rank;
  lists_[rank].push_back(block);
  ends_[rank] = {};
  chosen_ = none;
  ++size_;
}

void tblru::import_history(const tblru& predecessor) {
  tips_ = predecessor.tips_;
  delay_ = predecessor.delay_;
  later_turns_ = predecessor.later_turns_;
}

void tblru::touch(std::uint32_t block, std::uint32_t now) {
  const std::uint32_t earned = states_[block].earned;
  lists_[states_[block].rank].remove(block);
  place(block, std::max<std::uint32_t>(earned, rank_), now);
}

void tblru::refresh(std::uint32_t block, std::uint32_t now) {
  touch(block, now);
}

void tblru::skip_victim(std::uint32_t block, std::uint32_t now) {
  const std::uint32_t earned = states_[block].earned;
  lists_[states_[block].rank].remove(block);
  place(block, most_rank, now);                // or another class might still be worth more
  states_[block].earned = earned & most_rank;  // which it has again once it is used
}

void tblru::forget(std::uint32_t block) {
  lists_[states_[block].rank].remove(block);
  --size_;
  chosen_ = none;
  if (parent_ == block) parent_ = none;
}

std::optional<std::uint32_t> tblru::victim() {
  if (chosen_ != none) return chosen_;
  std::uint32_t oldest = none;
  std::uint64_t smallest = 0;
  const std::uint64_t bonus = this->bonus();
  for (std::uint32_t rank = 0; rank < class_count; ++rank) {
    const std::uint32_t last = lists_[rank].back();
    if (last == none) continue;
    if (ends_[rank].block != last) ends_[rank] = {last, states_[last].touched};
    const std::uint64_t key = ends_[rank].touched + bonus * rank;
    if (oldest != none && key >= smallest) continue;
    oldest = last;
    smallest = key;
  }
  chosen_ = oldest;
  if (oldest == none) return std::nullopt;
  return oldest;
}

std::uint32_t tblru::bonus() const noexcept {
  return std::max(delay_.value(), smallest_bonus);
}

/// More than one request went on from this block: it is a common beginning, not the tip of a session.
bool tblru::branches(const request& request, std::size_t position) const noexcept {
  if (!request.whole.empty() || position >= request.resident.size()) return false;  // of a sample it is not known
  const state* const here = states_.find(request.resident[position]);
  return here != nullptr && here->branches != 0;
}

/// The part of a child's identity that is kept: of two children one pair in many millions looks alike. Never 0.
std::uint32_t tblru::child_of(std::uint64_t id) noexcept {
  return static_cast<std::uint32_t>((id * child_spread) >> (64 - child_bits)) | 1U;
}

void tblru::note_child(std::uint32_t parent, std::uint64_t id) {
  state& of = states_.make(parent);  // it may be here without being admitted
  const std::uint32_t child = child_of(id);
  if (of.child != 0 && of.child != child) of.branches = 1;
  of.child = child & ((1U << child_bits) - 1);
}

/// The tip at this place of the request, if there is one and it is no common beginning: neither a block here nor a tip
/// that different blocks came after, unless the request ends there, too, and so repeats another one.
const tblru::tip* tblru::find_tip(const request& request, std::span<const std::uint64_t> ids, std::size_t position) {
  tip* const found = branches(request, position) ? nullptr : tips_.find(ids[position]);
  if (found == nullptr || position + 1 == ids.size()) return found;
  found->branches |= found->next != 0 && found->next != ids[position + 1];
  found->next = ids[position + 1];
  return found->branches ? nullptr : found;
}

std::uint32_t tblru::find_turn(const request& request, std::uint32_t now) {
  const auto ids = session_of(request);
  for (std::size_t at = ids.size(); at-- > 0;) {
    const tip* const found = find_tip(request, ids, at);
    if (found == nullptr) continue;
    const std::uint32_t delay = now - found->time;
    if (delay >= smallest_delay) {
      delay_.add(delay);
      chosen_ = none;
    }
    return found->turn + 1;
  }
  return 1;
}

void tblru::leave_tip(const request& request, std::uint32_t turn, std::uint32_t now) {
  const auto ids = session_of(request);
  if (ids.empty() || branches(request, ids.size() - 1)) return;
  tip left = tips_.take(ids.back()).value_or(tip{});
  left.time = now;
  left.turn = turn;
  tips_.push(ids.back(), left);
}

void tblru::place(std::uint32_t block, std::uint32_t rank, std::uint32_t now) {
  state& of = states_[block];
  of.rank = of.earned = rank & most_rank;
  of.touched = clock_.at(now);
  lists_[rank].push_front(block);
  if (ends_[rank].block == block) ends_[rank] = {};
  chosen_ = none;
}

}  // namespace cenote::eviction
