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
      holders_(std::move(other.holders_)),
      passed_(std::move(other.passed_)),
      expanded_(std::move(other.expanded_)),
      hashes_(std::move(other.hashes_)) {}

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

std::span<const prefix_row> prefix_reader::rows(const prefix_question& question) {
  state_count_ = 0;
  row_count_ = 0;
  passed_.clear();
  // Members that come later are in sets that are not looked at: words beyond are left out.
  make_room(parts_->holders.member_bound());
  model_ = question.model == nullptr ? 0 : question.model->number;
  is_filtered_ = !question.pods.empty();
  if (is_filtered_) {
    std::ranges::fill(filter_, 0);
    if (!parts_->holders.filter(question.pods, model_, filter_, hashes_)) return {};
  }
  const bool has_slots = question.model != nullptr;
  set_number last = 0;
  std::uint32_t passed = 0;
  for_spans(question.keys, [&](std::uint32_t block, std::uint32_t end, set_number set) {
    if (set != last && !(last == 0 ? begin(set) : go_on(set, block))) return false;
    last = set;
    passed = end;
    if (has_slots) passed_.push_back({block, end, set});
    return true;
  });
  for (std::size_t i = 0; i < state_count_; ++i) finish(states_[i], states_[i].alive, passed);
  if (has_slots) limit_rows(question);
  return {rows_.data(), row_count_};
}

// The words of a set, with the ranks that its nodes serve in the place of nodes.
std::span<const set_word> prefix_reader::words_of(set_number set, set_word& single) {
  const auto words = parts_->sets.words(set, single);
  if (parts_->links.empty()) return words;
  const auto has_nodes = [&](const set_word& word) { return (word.bits & parts_->links.nodes(word.word)) != 0; };
  if (std::ranges::none_of(words, has_nodes)) return words;
  expanded_.clear();
  for (const set_word& word : words) {
    const std::uint64_t nodes = word.bits & parts_->links.nodes(word.word);
    if (word.bits != nodes) expanded_.push_back({word.bits & ~nodes, word.word, word.plane, word.kind});
    for (std::uint64_t bits = nodes & live(word) & parts_->holders.visible(word.word); bits != 0; bits &= bits - 1) {
      const auto node = word.word * 64U + static_cast<std::uint32_t>(std::countr_zero(bits));
      for (const served_word& served : parts_->links.served(node)) {
        expanded_.push_back({served.bits, static_cast<std::uint16_t>(served.word), served_plane, word.kind});
      }
    }
  }
  std::ranges::stable_sort(expanded_, {}, &set_word::word);
  return expanded_;
}

// The ranks of `request` that any of these planes of a word has for the prefix, and for each its best medium.
std::uint64_t prefix_reader::best_of(std::span<const set_word> words, std::uint64_t request,
                                     std::array<std::uint64_t, most_media>& best) const noexcept {
  std::uint64_t all = 0;
  for (const set_word& word : words) {
    const slot_number slot = slot_of(word.kind);
    if (slot != 0 && slot != expected_slot) continue;
    const medium_number present = slot == 0 ? medium_of(word.kind) : gpu_medium;
    std::uint64_t bits = word.bits & request & live(word);
    const std::uint8_t rank = rank_of_medium_[present];
    for (std::size_t medium = 0; (all & bits) != 0 && medium < most_media; ++medium) {
      if (rank_of_medium_[medium] < rank) {
        bits &= ~best[medium];
      } else if (medium != present) {
        best[medium] &= ~bits;
      }
    }
    best[present] |= bits;
    all |= bits;
  }
  return all;
}

bool prefix_reader::begin(set_number set) {
  set_word single;
  const auto words = words_of(set, single);
  for (std::size_t i = 0; i < words.size();) {
    std::size_t next = i + 1;
    while (next < words.size() && words[next].word == words[i].word) ++next;
    const std::uint32_t word = words[i].word;
    if (word < states_.size()) {
      word_state& state = states_[state_count_];
      state.best = {};
      state.word = word;
      state.moved = 0;
      const std::uint64_t request = parts_->holders.visible(word) & (is_filtered_ ? filter_[word] : ~std::uint64_t{0});
      state.alive = best_of(words.subspan(i, next - i), request, state.best);
      if (state.alive != 0) ++state_count_;
    }
    i = next;
  }
  return state_count_ > 0;
}

// Goes on with another set at block `at`: some ranks end here, others have another best medium from here on.
bool prefix_reader::go_on(set_number set, std::uint32_t block) {
  set_word single;
  const auto words = words_of(set, single);
  std::size_t i = 0;
  std::size_t kept = 0;
  for (std::size_t j = 0; j < state_count_; ++j) {
    word_state& state = states_[j];
    while (i < words.size() && words[i].word < state.word) ++i;
    std::size_t next = i;
    while (next < words.size() && words[next].word == state.word) ++next;
    const auto present = words.subspan(i, next - i);
    i = next;
    if (present.size() == 1 && has_one_medium(state, present.front())) {
      shrink(state, present.front().bits & live(present.front()), block);
    } else {
      std::array<std::uint64_t, most_media> best{};
      shrink(state, best_of(present, state.alive, best), block);
      if (state.alive != 0 && best != state.best) move(state, best, block);
    }
    if (state.alive == 0) continue;
    if (kept != j) states_[kept] = state;
    ++kept;
  }
  state_count_ = kept;
  return kept > 0;
}

// Ends the prefixes of ranks that are not among `ranks`.
void prefix_reader::shrink(word_state& state, std::uint64_t ranks, std::uint32_t block) {
  const std::uint64_t gone = state.alive & ~ranks;
  if (gone == 0) return;
  finish(state, gone, block);
  state.alive &= ranks;
  for (std::uint64_t& one : state.best) one &= ranks;
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
      if (row.member == nullptr || row.member->model != model_) continue;
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

// Ends rows where an engine's block ends, and where a further cache group of their member lacks what its rule wants.
void prefix_reader::limit_rows(const prefix_question& question) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < row_count_; ++i) {
    prefix_row& row = rows_[i];
    const std::uint32_t blocks = usable(*row.member, question, row.blocks);
    if (blocks == 0) continue;
    const bool is_cut = row.member->step.load(std::memory_order_relaxed) > 1;
    if (blocks < row.blocks || is_cut) shorten(row, blocks);
    if (kept != i) rows_[kept] = row;
    ++kept;
  }
  row_count_ = kept;
}

std::uint32_t prefix_reader::usable(const pod_rank& member, const prefix_question& question, std::uint32_t blocks) {
  // An engine has its blocks whole, or not at all.
  const std::uint32_t step = member.step.load(std::memory_order_relaxed);
  if (step > 1) blocks -= blocks % step;
  const std::uint32_t slots = member.slots.load(std::memory_order_relaxed) & ~1U;
  if (slots == 0) return blocks;
  if (((slots >> closed_slot) & 1) != 0) return 0;
  for (std::uint32_t last = blocks + 1; blocks > 0 && blocks != last;) {
    last = blocks;
    for (slot_number slot = 1; slot < question.model->slot_count; ++slot) {
      if (((slots >> slot) & 1) == 0) continue;
      const std::uint32_t window = question.model->slots[slot].window_tokens;
      if (window == 0) {
        blocks = held_prefix(member.number, slot, blocks);
      } else {
        const std::uint32_t last_blocks = (window - 1 + question.block_tokens - 1) / question.block_tokens;
        if (last_blocks > 0) blocks = held_window(member.number, slot, last_blocks, blocks);
      }
      if (step > 1) blocks -= blocks % step;
    }
  }
  return blocks;
}

std::uint32_t prefix_reader::held_prefix(std::uint32_t member, slot_number slot, std::uint32_t blocks) {
  for (const passed_span& span : passed_) {
    if (span.begin >= blocks) break;
    if (!is_held(span.set, member, slot)) return span.begin;
  }
  return blocks;
}

// The largest length up to `blocks` whose last `window` blocks, or all that there are, are held.
std::uint32_t prefix_reader::held_window(std::uint32_t member, slot_number slot, std::uint32_t window,
                                         std::uint32_t blocks) {
  std::uint32_t top = blocks;
  for (std::size_t i = passed_.size(); i-- > 0 && top > 0;) {
    const passed_span& span = passed_[i];
    if (span.begin >= top) continue;
    if (!is_held(span.set, member, slot)) {
      top = span.begin;
    } else if (top - span.begin >= window) {
      return top;
    }
  }
  return top;
}

bool prefix_reader::is_held(set_number set, std::uint32_t member, slot_number slot) {
  set_word single;
  const auto words = words_of(set, single);
  const auto found = std::ranges::equal_range(words, static_cast<std::uint16_t>(member / 64), {}, &set_word::word);
  return std::ranges::any_of(found, [&](const set_word& word) {
    const slot_number present = slot_of(word.kind);
    return (present == slot || present == expected_slot) && (((word.bits & live(word)) >> (member % 64)) & 1) != 0;
  });
}

// The last of the blocks into which an engine's is cut stands for all: others can share the rest, in other media.
void prefix_reader::shorten(prefix_row& row, std::uint32_t blocks) {
  row.blocks = blocks;
  row.by_medium = {};
  row.score = 0;
  const std::uint32_t step = row.member->step.load(std::memory_order_relaxed);
  const std::uint32_t word = row.member->number / 64;
  const std::uint64_t bit = std::uint64_t{1} << (row.member->number % 64);
  for (const passed_span& span : passed_) {
    if (span.begin >= blocks) break;
    set_word single;
    const auto words = words_of(span.set, single);
    const auto present = std::ranges::equal_range(words, static_cast<std::uint16_t>(word), {}, &set_word::word);
    std::array<std::uint64_t, most_media> best{};
    (void)best_of({present.begin(), present.end()}, bit, best);
    for (std::size_t medium = 0; medium < most_media; ++medium) {
      if (best[medium] == 0) continue;
      row.by_medium[medium] += (std::min(span.end, blocks) / step - span.begin / step) * step;
    }
  }
  for (std::size_t i = 0; i < most_media; ++i) row.score += weights_[i] * row.by_medium[i];
}

std::array<std::uint64_t, most_media> prefix_reader::blocks_of(std::uint32_t member) const noexcept {
  std::array<std::uint64_t, most_media> blocks{};
  parts_->holders.visit_live(member, [&](holder_kind kind, std::uint64_t count) {
    if (slot_of(kind) != expected_slot) blocks[medium_of(kind)] += count;
  });
  return blocks;
}

std::span<const block_holder> prefix_reader::holders_of(set_number set) {
  holders_.clear();
  set_word single;
  for (const set_word& word : parts_->sets.words(set, single)) {
    std::uint64_t bits = word.bits & parts_->holders.live(word.plane, word.word);
    for (; bits != 0; bits &= bits - 1) {
      const auto bit = static_cast<std::uint32_t>(std::countr_zero(bits));
      const pod_rank* const member = parts_->holders.member(word.word * 64U + bit);
      if (member != nullptr) holders_.push_back({member, slot_of(word.kind), medium_of(word.kind)});
    }
  }
  return holders_;
}

}  // namespace cenote::indexer
