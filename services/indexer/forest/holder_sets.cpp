#include "services/indexer/forest/holder_sets.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace cenote::indexer {

namespace {

constexpr unsigned record_bits = 10;

std::uint32_t order(const set_word& word) noexcept {
  return (std::uint32_t{word.word} << 8) | word.plane;
}

}  // namespace

holder_sets::holder_sets(retirement_list& retired, holder_table& holders, std::size_t bitmaps, std::uint64_t seed)
    : retired_(retired),
      holders_(holders),
      seed_(seed),
      records_(retired.budget(), bitmaps, record_bits),
      index_(retired, bitmaps + records_.chunk_size()),
      free_(budget_allocator<set_number>(retired.budget())),
      scratch_(budget_allocator<set_word>(retired.budget())) {}

holder_sets::~holder_sets() {
  for (std::uint32_t i = 0; i < bound_; ++i) {
    set_record* const found = records_[i].load(std::memory_order_relaxed);
    if (found != nullptr) retired_.budget().release(found, set_record::bytes(found->count));
  }
}

bool holder_sets::contains(set_number set, holder number) const noexcept {
  if (set < first_bitmap) return set == number;
  const holder_place where = holders_.place(number);
  set_word single;
  const set_word request{0, static_cast<std::uint16_t>(where.member / 64), where.plane, where.kind};
  const auto all = words(set, single);
  const auto found = std::ranges::lower_bound(all, order(request), {}, order);
  return found != all.end() && order(*found) == order(request) && ((found->bits >> (where.member % 64)) & 1) != 0;
}

std::uint64_t holder_sets::birth(set_number set) const noexcept {
  if (set < first_bitmap) return 0;
  const set_record* const found = record(set);
  return found == nullptr ? 0 : found->birth;
}

holder_sets::transition& holder_sets::cached(set_number set, holder changed, change_kind kind) noexcept {
  const std::uint64_t mixed = spread((std::uint64_t{set} << 32) | changed, static_cast<std::uint64_t>(kind));
  return transitions_[mixed >> 54];
}

set_number holder_sets::change(set_number set, holder changed, change_kind kind) noexcept {
  if (set < first_bitmap) {
    if (kind == change_kind::difference) return set == changed ? 0 : set;
    if (set == 0 || set == changed) return changed;
  }
  transition& known = cached(set, changed, kind);
  const bool is_known = known.set == set && known.changed == changed && known.kind == kind &&
                        known.set_birth == birth(set) && known.result_birth == birth(known.result);
  if (is_known) return known.result;
  if (contains(set, changed) == (kind == change_kind::sum)) return set;
  const set_number result = make(set, changed, kind);
  if (result != no_set) known = {set, result, changed, kind, birth(set), birth(result)};
  return result;
}

set_number holder_sets::make(set_number set, holder changed, change_kind kind) noexcept {
  set_word bit;
  (void)words(changed, bit);
  set_word single;
  const auto old = words(set, single);
  const std::uint32_t old_count = set < first_bitmap ? 1 : record(set)->holders;
  const std::uint32_t count = kind == change_kind::sum ? old_count + 1 : old_count - 1;
  try {
    scratch_.assign(old.begin(), old.end());
    const auto at = std::ranges::lower_bound(scratch_, order(bit), {}, order);
    const bool is_word = at != scratch_.end() && order(*at) == order(bit);
    if (kind == change_kind::sum) {
      if (is_word) {
        at->bits |= bit.bits;
      } else {
        scratch_.insert(at, bit);
      }
    } else {
      at->bits &= ~bit.bits;
      if (at->bits == 0) scratch_.erase(at);
    }
  } catch (const std::bad_alloc&) {
    return no_set;
  }
  if (count == 1) {
    const set_word& last = scratch_.front();
    return holders_.holder_at(last.plane, last.word * 64U + static_cast<std::uint32_t>(std::countr_zero(last.bits)));
  }
  return intern(scratch_, hash_of(scratch_), count);
}

std::uint64_t holder_sets::hash_of(std::span<const set_word> words) const noexcept {
  std::uint64_t hash = seed_;
  for (const set_word& word : words) hash = spread(hash ^ word.bits, order(word));
  return hash;
}

set_number holder_sets::intern(std::span<const set_word> words, std::uint64_t hash, std::uint32_t holders) noexcept {
  const auto is_same = [&](const set_word& one, const set_word& other) {
    return one.bits == other.bits && order(one) == order(other);
  };
  const std::uint32_t known = index_.find(hash, [&](std::uint32_t number) {
    const set_record* const found = record(first_bitmap + number);
    return found->hash == hash && std::ranges::equal(std::span(found->words(), found->count), words, is_same);
  });
  if (known != number_table::no_number) return first_bitmap + known;
  const auto hash_of_number = [&](std::uint32_t number) { return record(first_bitmap + number)->hash; };
  if (!index_.make_room(1, 0, hash_of_number, [](std::uint32_t) {})) return no_set;
  if (free_.empty() && bound_ == records_.capacity()) {
    if (!records_.grow()) return no_set;
    try {
      free_.reserve(records_.capacity());  // so that reuse() finds room
    } catch (const std::bad_alloc&) {
      records_.shrink();
      return no_set;
    }
  }
  void* const memory = retired_.budget().allocate(set_record::bytes(words.size()));
  if (memory == nullptr) return no_set;
  auto* const made = new (memory) set_record{
      .birth = ++births_, .count = static_cast<std::uint32_t>(words.size()), .holders = holders, .hash = hash};
  std::ranges::copy(words, made->words());
  set_number number = first_bitmap + bound_;
  if (free_.empty()) {
    ++bound_;
  } else {
    number = free_.back();
    free_.pop_back();
  }
  records_[number - first_bitmap].store(made, std::memory_order_release);
  index_.insert(hash, number - first_bitmap);
  return number;
}

void holder_sets::drop(set_number set) noexcept {
  set_record* const found = record(set);
  index_.erase(found->hash, set - first_bitmap);
  found->birth = 0;
  // Readers that have the number still load the record: it goes when the number does.
  retired_.add(retired_kind::set, set, found, set_record::bytes(found->count));
}

}  // namespace cenote::indexer
