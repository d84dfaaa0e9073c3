#include "services/indexer/forest/prefix_reader.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace cenote::indexer {

std::optional<prefix_reader> prefix_reader::open(forest& source) {
  const auto place = source.parts_.retired.epochs().claim();
  if (!place) return std::nullopt;
  return prefix_reader(source.parts_, *place);
}

prefix_reader::prefix_reader(forest_parts& parts, std::size_t place) : parts_(&parts), place_(place) {
  set_weights({});
}

prefix_reader::prefix_reader(prefix_reader&& other) noexcept
    : parts_(std::exchange(other.parts_, nullptr)),
      place_(other.place_),
      weights_(other.weights_),
      rank_of_medium_(other.rank_of_medium_),
      states_(std::move(other.states_)),
      moved_(std::move(other.moved_)),
      rows_(std::move(other.rows_)),
      filter_(std::move(other.filter_)),
      holders_(std::move(other.holders_)) {}

prefix_reader::~prefix_reader() {
  if (parts_ != nullptr) parts_->retired.epochs().give_back(place_);
}

void prefix_reader::set_weights(const medium_weights& weights) noexcept {
  weights_ = weights.of_medium;
  std::array<std::uint8_t, most_media> media{};
  std::iota(media.begin(), media.end(), std::uint8_t{0});
  std::ranges::stable_sort(media,
                           [&](std::uint8_t one, std::uint8_t other) { return weights_[one] > weights_[other]; });
  for (std::uint8_t i = 0; i < most_media; ++i) rank_of_medium_[media[i]] = i;
}

void prefix_reader::make_room(std::size_t members) {
  const std::size_t words = (members + 63) / 64;
  if (states_.size() >= words) return;
  states_.resize(words);
  moved_.resize(words * 64);
  rows_.resize(words * 64);
  filter_.resize(words);
}

std::span<const prefix_row> prefix_reader::rows(std::span<const std::uint64_t> keys,
                                                std::span<const std::string_view> pods) {
  state_count_ = 0;
  row_count_ = 0;
  // Members that come later are in sets that are not looked at: words beyond are left out.
  make_room(parts_->holders.member_bound());
  if (!pods.empty()) {
    std::ranges::fill(filter_, 0);
    if (!parts_->holders.filter(pods, filter_)) return {};
  }
  set_number last = 0;
  std::uint32_t passed = 0;
  for_spans(keys, [&](std::uint32_t block, std::uint32_t end, set_number set) {
    if (set != last && !(last == 0 ? begin(set, !pods.empty()) : go_on(set, block))) return false;
    last = set;
    passed = end;
    return true;
  });
  for (std::size_t i = 0; i < state_count_; ++i) finish(states_[i], states_[i].alive, passed);
  return {rows_.data(), row_count_};
}

// The ranks of `wanted` that any of these planes of a word has, and for each its best medium.
std::uint64_t prefix_reader::best_of(std::span<const set_word> words, std::uint64_t request,
                                     std::array<std::uint64_t, most_media>& best) const noexcept {
  std::uint64_t all = 0;
  for (const set_word& word : words) {
    std::uint64_t bits = word.bits & request & parts_->holders.live(word.plane, word.word);
    const std::uint8_t rank = rank_of_medium_[word.medium];
    for (std::size_t medium = 0; (all & bits) != 0 && medium < most_media; ++medium) {
      if (rank_of_medium_[medium] < rank) {
        bits &= ~best[medium];
      } else if (medium != word.medium) {
        best[medium] &= ~bits;
      }
    }
    best[word.medium] |= bits;
    all |= bits;
  }
  return all;
}

bool prefix_reader::begin(set_number set, bool is_filtered) {
  set_word single;
  const auto words = parts_->sets.words(set, single);
  for (std::size_t i = 0; i < words.size();) {
    std::size_t next = i + 1;
    while (next < words.size() && words[next].word == words[i].word) ++next;
    const std::uint32_t word = words[i].word;
    if (word < states_.size()) {
      word_state& state = states_[state_count_];
      state.best = {};
      state.word = word;
      state.moved = 0;
      state.alive = best_of(words.subspan(i, next - i), is_filtered ? filter_[word] : ~std::uint64_t{0}, state.best);
      if (state.alive != 0) ++state_count_;
    }
    i = next;
  }
  return state_count_ > 0;
}

// Goes on with another set at block `at`: some ranks end here, others have another best medium from here on.
bool prefix_reader::go_on(set_number set, std::uint32_t block) {
  set_word single;
  const auto words = parts_->sets.words(set, single);
  std::size_t i = 0;
  std::size_t kept = 0;
  for (std::size_t j = 0; j < state_count_; ++j) {
    word_state& state = states_[j];
    while (i < words.size() && words[i].word < state.word) ++i;
    std::size_t next = i;
    while (next < words.size() && words[next].word == state.word) ++next;
    std::array<std::uint64_t, most_media> best{};
    const std::uint64_t alive = best_of(words.subspan(i, next - i), state.alive, best);
    i = next;
    if (const std::uint64_t gone = state.alive & ~alive; gone != 0) {
      finish(state, gone, block);
      state.alive = alive;
      for (std::uint64_t& one : state.best) one &= alive;
    }
    if (alive == 0) continue;
    if (best != state.best) move(state, best, block);
    if (kept != j) states_[kept] = state;
    ++kept;
  }
  state_count_ = kept;
  return kept > 0;
}

void prefix_reader::move(word_state& state, const std::array<std::uint64_t, most_media>& best, std::uint32_t block) {
  for (std::size_t medium = 0; medium < most_media; ++medium) {
    for (std::uint64_t bits = state.best[medium] & ~best[medium]; bits != 0; bits &= bits - 1) {
      const auto bit = static_cast<std::uint32_t>(std::countr_zero(bits));
      moved_rank& rank = moved_[state.word * std::size_t{64} + bit];
      if (((state.moved >> bit) & 1) == 0) rank = {};
      state.moved |= std::uint64_t{1} << bit;
      rank.blocks[medium] += block - rank.start;
      rank.start = block;
    }
  }
  state.best = best;
}

void prefix_reader::finish(const word_state& state, std::uint64_t ranks, std::uint32_t block) {
  for (std::size_t medium = 0; medium < most_media; ++medium) {
    for (std::uint64_t bits = state.best[medium] & ranks; bits != 0; bits &= bits - 1) {
      const auto bit = static_cast<std::uint32_t>(std::countr_zero(bits));
      const std::uint32_t member = state.word * 64 + bit;
      prefix_row& row = rows_[row_count_];
      row.member = parts_->holders.member(member);
      if (row.member == nullptr) continue;
      ++row_count_;
      row.blocks = block;
      if (((state.moved >> bit) & 1) == 0) {
        row.by_medium = {};
        row.by_medium[medium] = block;
        row.score = weights_[medium] * block;
        continue;
      }
      const moved_rank& rank = moved_[member];
      row.by_medium = rank.blocks;
      row.by_medium[medium] += block - rank.start;
      row.score = 0;
      for (std::size_t i = 0; i < most_media; ++i) row.score += weights_[i] * row.by_medium[i];
    }
  }
}

std::span<const block_holder> prefix_reader::holders_of(set_number set) {
  holders_.clear();
  set_word single;
  for (const set_word& word : parts_->sets.words(set, single)) {
    std::uint64_t bits = word.bits & parts_->holders.live(word.plane, word.word);
    for (; bits != 0; bits &= bits - 1) {
      const auto bit = static_cast<std::uint32_t>(std::countr_zero(bits));
      const pod_rank* const member = parts_->holders.member(word.word * 64U + bit);
      if (member != nullptr) holders_.push_back({member, word.medium});
    }
  }
  return holders_;
}

}  // namespace cenote::indexer
