#include "services/indexer/forest/holder_table.hpp"

#include <algorithm>
#include <new>

#include "core/checksum.hpp"

namespace cenote::indexer {

namespace {

constexpr unsigned state_bits = 8;
constexpr std::uint32_t most_probed_ranks = 8;  // where pods have more, all members are looked at

}  // namespace

holder_table::holder_table(retirement_list& retired, std::size_t members, std::uint64_t seed)
    : retired_(retired),
      seed_(seed),
      words_((std::min<std::size_t>(members, most_holders) + 63) / 64),
      states_(retired.budget(), most_holders + 1, state_bits),
      members_(retired.budget(), words_ * 64, state_bits),
      member_names_(retired, words_ * 64),
      marks_(words_, budget_allocator<mark_word>(retired.budget())),
      dead_(budget_allocator<holder>(retired.budget())),
      free_holders_(budget_allocator<holder>(retired.budget())),
      free_members_(budget_allocator<std::uint32_t>(retired.budget())) {
  for (const std::string_view name : {"gpu", "cpu", "disk", "shared_storage", "object_store"}) (void)medium_of(name);
}

holder_table::~holder_table() {
  index_budget& budget = retired_.budget();
  for (std::size_t i = 0; i < plane_count_; ++i) {
    budget.release(planes_[i].load(std::memory_order_relaxed), plane_row::bytes(words_));
  }
  for (std::uint32_t i = 0; i < member_bound(); ++i) {
    pod_rank* const record = members_[i].load(std::memory_order_relaxed);
    if (record != nullptr) budget.release(record, sizeof(pod_rank) + record->length);
  }
}

std::expected<medium_number, holder_refusal> holder_table::medium_of(std::string_view name) noexcept {
  const std::size_t count = media_count_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i) {
    if (medium_name(static_cast<medium_number>(i)) == name) return static_cast<medium_number>(i);
  }
  if (name.empty() || name.size() >= media_[0].size()) return std::unexpected(holder_refusal::long_name);
  if (count == most_media) return std::unexpected(holder_refusal::too_many);
  std::ranges::copy(name, media_[count].begin());
  media_count_.store(count + 1, std::memory_order_release);
  return static_cast<medium_number>(count);
}

std::string_view holder_table::medium_name(medium_number medium) const noexcept {
  return medium < media_count_.load(std::memory_order_acquire) ? std::string_view(media_[medium].data())
                                                               : std::string_view();
}

std::uint64_t holder_table::hash_of(std::string_view pod, std::uint16_t model) const noexcept {
  return spread(checksum_of(pod.data(), pod.size(), seed_), model);
}

std::uint32_t holder_table::find_member(std::string_view pod, std::uint16_t model, std::uint16_t rank) const noexcept {
  return member_names_.find(spread(hash_of(pod, model), rank), [&](std::uint32_t number) {
    const pod_rank* const record = member(number);
    return record != nullptr && record->rank == rank && record->model == model && record->pod() == pod;
  });
}

std::expected<holder, holder_refusal> holder_table::open(const holder_name& name) noexcept {
  if (name.pod.empty() || name.pod.size() > most_name) return std::unexpected(holder_refusal::long_name);
  if (const holder number = find(name); number != 0) return number;
  try {
    const std::uint32_t known = find_member(name.pod, name.model, name.rank);
    const auto member = known == no_member ? add_member(name) : known;
    if (!member) return std::unexpected(member.error());
    const auto plane = free_plane(name.kind, *member);
    const auto number = plane ? free_number() : std::unexpected(plane.error());
    if (!number) {
      if (known == no_member) drop_member(*member);
      return number;
    }
    holder_state& state = states_[*number];
    state.blocks.store(0, std::memory_order_relaxed);
    state.dropped.store(0, std::memory_order_relaxed);
    state.place.store(*member | (std::uint32_t{*plane} << 16) | (std::uint32_t{name.kind} << 24),
                      std::memory_order_relaxed);
    plane_row& row = *planes_[*plane].load(std::memory_order_relaxed);
    row.holder_of(words_, *member).store(static_cast<std::uint16_t>(*number), std::memory_order_relaxed);
    auto& live = row.live(*member / 64);
    live.store(live.load(std::memory_order_relaxed) | bit(*member), std::memory_order_relaxed);
    ++members_[*member].load(std::memory_order_relaxed)->holders;
    return *number;
  } catch (const std::bad_alloc&) {
    return std::unexpected(holder_refusal::out_of_memory);
  }
}

std::expected<std::uint32_t, holder_refusal> holder_table::add_member(const holder_name& name) noexcept {
  const auto hash_of_number = [&](std::uint32_t number) { return member(number)->hash; };
  if (!member_names_.make_room(1, 0, hash_of_number, [](std::uint32_t) {})) {
    return std::unexpected(holder_refusal::out_of_memory);
  }
  const bool is_new = free_members_.empty();
  const std::uint32_t bound = member_bound();
  if (is_new && bound == words_ * 64) return std::unexpected(holder_refusal::too_many);
  if (is_new && bound == members_.capacity() && !members_.grow()) {
    return std::unexpected(holder_refusal::out_of_memory);
  }
  void* const memory = retired_.budget().allocate(sizeof(pod_rank) + name.pod.size());
  if (memory == nullptr) return std::unexpected(holder_refusal::out_of_memory);
  const std::uint32_t number = is_new ? bound : free_members_.back();
  if (!is_new) free_members_.pop_back();
  const std::uint64_t pod_hash = hash_of(name.pod, name.model);
  auto* const record = new (memory) pod_rank{.hash = spread(pod_hash, name.rank),
                                             .pod_hash = pod_hash,
                                             .number = number,
                                             .model = name.model,
                                             .rank = name.rank,
                                             .length = static_cast<std::uint16_t>(name.pod.size())};
  std::ranges::copy(name.pod, reinterpret_cast<char*>(record + 1));
  mark(number, {});
  members_[number].store(record, std::memory_order_release);
  member_names_.insert(record->hash, number);
  if (is_new) member_bound_.store(bound + 1, std::memory_order_release);
  if (name.rank >= rank_bound_.load(std::memory_order_relaxed)) {
    rank_bound_.store(name.rank + 1U, std::memory_order_release);
  }
  return number;
}

void holder_table::drop_member(std::uint32_t number) noexcept {
  pod_rank* const record = members_[number].load(std::memory_order_relaxed);
  member_names_.erase(record->hash, number);
  members_[number].store(nullptr, std::memory_order_release);
  mark(number, {});
  retired_.add_memory(record, sizeof(pod_rank) + record->length);
  retired_.add(retired_kind::member, number);
}

std::expected<std::uint8_t, holder_refusal> holder_table::free_plane(holder_kind kind, std::uint32_t member) noexcept {
  for (std::size_t i = 0; i < plane_count_; ++i) {
    if (plane_kinds_[i] == kind && holder_at(static_cast<std::uint8_t>(i), member) == 0) {
      return static_cast<std::uint8_t>(i);
    }
  }
  if (plane_count_ == most_planes) return std::unexpected(holder_refusal::too_many);
  void* const memory = retired_.budget().allocate(plane_row::bytes(words_));
  if (memory == nullptr) return std::unexpected(holder_refusal::out_of_memory);
  std::uninitialized_value_construct_n(static_cast<std::atomic<std::uint64_t>*>(memory), words_);
  std::uninitialized_value_construct_n(
      reinterpret_cast<std::atomic<std::uint16_t>*>(static_cast<std::atomic<std::uint64_t>*>(memory) + words_),
      words_ * 64);
  plane_kinds_[plane_count_] = kind;
  planes_[plane_count_].store(static_cast<plane_row*>(memory), std::memory_order_release);
  return static_cast<std::uint8_t>(plane_count_.fetch_add(1, std::memory_order_release));
}

std::expected<holder, holder_refusal> holder_table::free_number() noexcept {
  if (!free_holders_.empty()) {
    const holder number = free_holders_.back();
    free_holders_.pop_back();
    return number;
  }
  if (holder_bound_ > most_holders) return std::unexpected(holder_refusal::too_many);
  if (holder_bound_ >= states_.capacity() && !states_.grow()) return std::unexpected(holder_refusal::out_of_memory);
  // Room for numbers that come back is taken now, since that may not fail.
  try {
    dead_.reserve(std::bit_ceil(std::size_t{holder_bound_} + 1));
    free_holders_.reserve(dead_.capacity());
    free_members_.reserve(dead_.capacity());
  } catch (const std::bad_alloc&) {
    return std::unexpected(holder_refusal::out_of_memory);
  }
  return holder_bound_++;
}

holder holder_table::find(const holder_name& name) const noexcept {
  const std::uint32_t member = find_member(name.pod, name.model, name.rank);
  if (member == no_member) return 0;
  for (std::size_t i = 0; i < plane_count_; ++i) {
    const auto plane = static_cast<std::uint8_t>(i);
    if (plane_kinds_[i] == name.kind && ((live(plane, member / 64) >> (member % 64)) & 1) != 0)
      return holder_at(plane, member);
  }
  return 0;
}

bool holder_table::is_live(holder number) const noexcept {
  if (number == 0 || number >= holder_bound_) return false;
  const holder_place where = place(number);
  const bool is_set =
      plane_count_ > where.plane && ((live(where.plane, where.member / 64) >> (where.member % 64)) & 1) != 0;
  return is_set && holder_at(where.plane, where.member) == number;
}

void holder_table::kill(holder number) noexcept {
  if (!is_live(number)) return;
  const holder_place where = place(number);
  auto& live = planes_[where.plane].load(std::memory_order_relaxed)->live(where.member / 64);
  live.store(live.load(std::memory_order_relaxed) & ~(std::uint64_t{1} << (where.member % 64)),
             std::memory_order_release);
  states_[number].blocks.store(0, std::memory_order_relaxed);
  dead_.push_back(number);
}

void holder_table::retire_dead(std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) retired_.add(retired_kind::holder, dead_[i]);
  dead_.erase(dead_.begin(), dead_.begin() + static_cast<std::ptrdiff_t>(count));
}

void holder_table::reuse_holder(holder number) noexcept {
  const holder_place where = place(number);
  plane_row& row = *planes_[where.plane].load(std::memory_order_relaxed);
  row.holder_of(words_, where.member).store(0, std::memory_order_relaxed);
  pod_rank* const record = members_[where.member].load(std::memory_order_relaxed);
  if (--record->holders == 0) drop_member(where.member);
  free_holders_.push_back(number);
}

bool holder_table::has_members(std::uint16_t model) const noexcept {
  for (std::uint32_t i = 0; i < member_bound(); ++i) {
    const pod_rank* const record = member(i);
    if (record != nullptr && record->model == model) return true;
  }
  return false;
}

void holder_table::mark(std::uint32_t member, member_mark state) noexcept {
  mark_word& word = marks_[member / 64];
  const auto set = [&](std::atomic<std::uint64_t>& bits, bool is_set) {
    const std::uint64_t present = bits.load(std::memory_order_relaxed);
    bits.store(is_set ? present | bit(member) : present & ~bit(member), std::memory_order_relaxed);
  };
  const bool was_degraded = (word.degraded.load(std::memory_order_relaxed) & bit(member)) != 0;
  set(word.hidden, state.is_hidden);
  set(word.degraded, state.is_degraded);
  const std::uint32_t count = degraded_count_.load(std::memory_order_relaxed) - (was_degraded ? 1U : 0U);
  degraded_count_.store(count + (state.is_degraded ? 1U : 0U), std::memory_order_relaxed);
}

bool holder_table::filter(std::span<const std::string_view> pods, std::uint16_t model, std::span<std::uint64_t> words,
                          std::vector<std::uint64_t>& scratch) const {
  bool is_any = false;
  const auto add = [&](std::uint32_t number) {
    if (number == no_member || number / 64 >= words.size()) return;
    words[number / 64] |= bit(number);
    is_any = true;
  };
  const std::uint32_t ranks = rank_bound_.load(std::memory_order_acquire);
  if (ranks <= most_probed_ranks) {
    for (const std::string_view pod : pods) {
      for (std::uint32_t rank = 0; rank < ranks; ++rank) add(find_member(pod, model, static_cast<std::uint16_t>(rank)));
    }
    return is_any;
  }
  scratch.clear();
  for (const std::string_view pod : pods) scratch.push_back(hash_of(pod, model));
  std::ranges::sort(scratch);
  const std::uint32_t bound = member_bound();
  for (std::uint32_t i = 0; i < bound; ++i) {
    const pod_rank* const record = member(i);
    if (record == nullptr || record->model != model) continue;
    if (std::ranges::binary_search(scratch, record->pod_hash)) add(i);
  }
  return is_any;
}

}  // namespace cenote::indexer
