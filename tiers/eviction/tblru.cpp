#include "tiers/eviction/tblru.hpp"

#include <algorithm>
#include <utility>

namespace cenote::eviction {

namespace {

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
    : admits_partial_(partial), lists_(make_lists(links, std::make_index_sequence<class_count>())) {}

std::uint32_t tblru::begin_request(const request& request, std::uint32_t time) {
  const std::uint32_t turn = turn_of(request, time);
  chosen_ = none;  // the bonus may be another one
  resume_request(turn, request.resident.empty() ? std::nullopt : std::optional(request.resident.back()));
  if (request.partial && !request.ids.empty()) partial_ = request.ids.back();
  const std::size_t followed = std::min(request.resident.size(), request.full() - (request.full() > 0 ? 1 : 0));
  for (std::size_t at = 0; at < followed; ++at) note_child(request.resident[at], request.ids[at + 1]);
  return turn;
}

std::uint32_t tblru::turn_of(const request& request, std::uint32_t time) {
  turns_ = request.turns != nullptr ? request.turns : &own_turns_;
  if (request.turns != nullptr) return request.turns->turn();
  if (request.ids.empty()) return 1;  // or touches of a client without blocks would make time run
  return own_turns_.begin(session_of(request), time,
                          [this, &request](std::size_t position) { return branches(request, position); });
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
  return turns_->sees_sessions();
}

bool tblru::should_admit(std::uint64_t id, std::uint32_t now) {
  if (stopped_ || (partial_ == id && admits_partial_ == partial_blocks::refused)) return false;
  if (!first_turn_ || size_ < capacity_ || size_ == 0 || !sees_sessions()) return true;
  const std::uint64_t age = turns_->counted_time(now) - states_[*victim()].touched;
  stopped_ = age * 4 < std::uint64_t{turns_->bonus()} * 3;
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
  of.touched = turns_->counted_time(then);
  of.rank = of.earned = rank & most_rank;
  lists_[rank].push_back(block);
  ends_[rank] = {};
  chosen_ = none;
  ++size_;
}

void tblru::import_history(const tblru& predecessor) {
  own_turns_.import_history(*predecessor.turns_);
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
  const std::uint64_t bonus = turns_->bonus();
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

void tblru::place(std::uint32_t block, std::uint32_t rank, std::uint32_t now) {
  state& of = states_[block];
  of.rank = of.earned = rank & most_rank;
  of.touched = turns_->counted_time(now);
  lists_[rank].push_front(block);
  if (ends_[rank].block == block) ends_[rank] = {};
  chosen_ = none;
}

}  // namespace cenote::eviction
