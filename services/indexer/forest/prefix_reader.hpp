// Answers of the index beside its writer: which rank of which pod has how long a prefix.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "services/indexer/forest/forest.hpp"

namespace cenote::indexer {

/// The worth of a block by its medium; by number of the medium.
struct medium_weights {
  std::array<double, most_media> of_medium{1.0, 0.8, 0.6, 0.4, 0.2, 0.0, 0.0, 0.0};
};

/// A prompt, and the pods that are asked for it.
struct prefix_question {
  std::span<const std::uint64_t> keys{};
  std::span<const std::string_view> pods{};  ///< only these; empty: all
  const model_facts* model = nullptr;        ///< null: model 0, whose pods have one cache group
  std::uint32_t block_tokens = 1;            ///< of the keys' blocks; windows are counted in them
};

/// The prefix that a rank of a pod has.
struct prefix_row {
  const pod_rank* member = nullptr;  ///< valid as long as the call that visits
  std::uint32_t blocks = 0;
  double score = 0;                                   ///< the sum of each block's best weight
  std::array<std::uint32_t, most_media> by_medium{};  ///< blocks whose best medium this is
};

/// The holder of a block.
struct block_holder {
  const pod_rank* member = nullptr;  ///< valid as long as the call that visits
  slot_number slot = 0;
  medium_number medium = 0;
};

/// Asks a forest, from one thread at a time and without locks; at most epoch_table::most_readers exist at once. What it
/// needs beside the index is allocated when the number of pods has grown, else nothing is. The forest outlives it.
class prefix_reader {
 public:
  /// None if there are too many readers.
  [[nodiscard]] static std::optional<prefix_reader> open(forest& source);
  prefix_reader(const prefix_reader&) = delete;
  prefix_reader& operator=(const prefix_reader&) = delete;
  prefix_reader(prefix_reader&& other) noexcept;
  prefix_reader& operator=(prefix_reader&&) = delete;
  ~prefix_reader();

  void set_weights(const medium_weights& weights) noexcept;

  /// The facts of a model, or of an adapter's; none: it is unknown. Thread-safe as the rest.
  [[nodiscard]] std::optional<model_facts> model(std::string_view name) const noexcept {
    const epoch_guard inside(*this);
    return parts_->models.find(name);
  }
  /// True if some block with this key may begin a chain: without one no pod has anything of a prompt that begins so.
  [[nodiscard]] bool is_known(std::uint64_t first_key) const noexcept {
    const epoch_guard inside(*this);
    return parts_->find_head(first_key) != no_run;
  }

  /// Calls `visit` once with a row for each rank of a pod that has the first block: exactly the leading blocks that it
  /// has in any medium, itself or by its node. Rows end where a block of the pod's engine ends. Where a pod has further
  /// cache groups, its row ends at the last block at which each of them has what its slot_rule wants. Rows are in no
  /// order. Throws std::bad_alloc.
  template <class Visit>
  void walk(const prefix_question& question, Visit&& visit) {
    const epoch_guard inside(*this);
    visit(rows(question));
  }
  template <class Visit>
  void walk(std::span<const std::uint64_t> keys, Visit&& visit) {
    walk(prefix_question{.keys = keys}, std::forward<Visit>(visit));
  }

  /// Calls `visit(const pod_rank&)` for each member of a model that has lost events for good.
  template <class Visit>
  void visit_degraded(model_number model, Visit&& visit) {
    const epoch_guard inside(*this);
    if (!parts_->holders.has_degraded()) return;
    visit_members([&](const pod_rank& member) {
      const std::uint64_t bits = parts_->holders.degraded(member.number / 64);
      if (member.model == model && ((bits >> (member.number % 64)) & 1) != 0) visit(member);
    });
  }
  /// Calls `visit(member, model, blocks)` for each rank of a pod, with the name of its model and the number of its
  /// blocks by medium; a block that several cache groups have counts for each.
  template <class Visit>
  void visit_pods(Visit&& visit) {
    const epoch_guard inside(*this);
    visit_members(
        [&](const pod_rank& member) { visit(member, parts_->models.name(member.model), blocks_of(member.number)); });
  }
  /// Whether a pod of this name has or had blocks, or has a publisher.
  [[nodiscard]] bool has_pod(std::string_view pod) const noexcept {
    const epoch_guard inside(*this);
    bool is_found = false;
    visit_members([&](const pod_rank& member) { is_found = is_found || member.pod() == pod; });
    return is_found;
  }
  /// The name of a medium; empty if the number has none.
  [[nodiscard]] std::string_view medium_name(medium_number medium) const noexcept {
    return parts_->holders.medium_name(medium);
  }

  /// Whether some block is or was in a medium of this name; the empty one stands for all.
  [[nodiscard]] bool has_medium(std::string_view medium) const noexcept {
    bool is_found = medium.empty();
    for (medium_number i = 0; i < most_media; ++i) is_found = is_found || medium_name(i) == medium;
    return is_found;
  }

  /// Calls `visit(index, holders)` for each key up to the first that nothing holds; a node is a holder of its own.
  template <class Visit>
  void lookup(std::span<const std::uint64_t> keys, Visit&& visit) {
    const epoch_guard inside(*this);
    for_spans(keys, [&](std::uint32_t begin, std::uint32_t end, set_number set) {
      const auto holders = holders_of(set);
      if (holders.empty()) return false;
      for (std::uint32_t i = begin; i < end; ++i) visit(std::size_t{i}, holders);
      return true;
    });
  }

 private:
  class epoch_guard {
   public:
    explicit epoch_guard(const prefix_reader& reader) noexcept : reader_(reader) {
      reader.parts_->retired.epochs().enter(reader.place_);
    }
    epoch_guard(const epoch_guard&) = delete;
    epoch_guard& operator=(const epoch_guard&) = delete;
    epoch_guard(epoch_guard&&) = delete;
    epoch_guard& operator=(epoch_guard&&) = delete;
    ~epoch_guard() { reader_.parts_->retired.epochs().leave(reader_.place_); }

   private:
    const prefix_reader& reader_;
  };
  /// 64 ranks of pods on the way.
  struct word_state {
    std::uint64_t alive = 0;
    std::uint64_t moved = 0;  ///< those whose best medium changed on the way
    std::uint32_t word = 0;
    std::array<std::uint64_t, most_media> best{};  ///< by medium, those of which it is the best
  };
  /// A rank whose best medium changed.
  struct moved_rank {
    std::uint32_t start = 0;
    std::array<std::uint32_t, most_media> blocks{};
  };
  /// Blocks of the prompt with the same holders.
  struct passed_span {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    set_number set = 0;
  };

  /// In the words of a set: the members that a node serves, of which it is known that they are live.
  static constexpr std::uint8_t served_plane = 255;
  static_assert(holder_table::most_planes <= served_plane);

  prefix_reader(forest_parts& parts, std::size_t place);

  template <class Visit>
  void for_spans(std::span<const std::uint64_t> keys, Visit&& visit) const;
  template <class Visit>
  void visit_members(Visit&& visit) const {
    for (std::uint32_t i = 0; i < parts_->holders.member_bound(); ++i) {
      const pod_rank* const member = parts_->holders.member(i);
      if (member != nullptr) visit(*member);
    }
  }
  [[nodiscard]] std::array<std::uint64_t, most_media> blocks_of(std::uint32_t member) const noexcept;
  [[nodiscard]] std::span<const prefix_row> rows(const prefix_question& question);
  [[nodiscard]] std::span<const set_word> words_of(set_number set, set_word& single);
  [[nodiscard]] std::uint64_t live(const set_word& word) const noexcept {
    return word.plane == served_plane ? ~std::uint64_t{0} : parts_->holders.live(word.plane, word.word);
  }
  void limit_rows(const prefix_question& question);
  [[nodiscard]] std::uint32_t usable(const pod_rank& member, const prefix_question& question, std::uint32_t blocks);
  [[nodiscard]] std::uint32_t held_prefix(std::uint32_t member, slot_number slot, std::uint32_t blocks);
  [[nodiscard]] std::uint32_t held_window(std::uint32_t member, slot_number slot, std::uint32_t window,
                                          std::uint32_t blocks);
  [[nodiscard]] bool is_held(set_number set, std::uint32_t member, slot_number slot);
  void shorten(prefix_row& row, std::uint32_t blocks);
  [[nodiscard]] std::span<const block_holder> holders_of(set_number set);
  void make_room(std::size_t members);
  [[nodiscard]] bool begin(set_number set);
  [[nodiscard]] bool go_on(set_number set, std::uint32_t block);
  [[nodiscard]] std::uint64_t best_of(std::span<const set_word> words, std::uint64_t request,
                                      std::array<std::uint64_t, most_media>& best) const noexcept;
  /// The best medium of all ranks of the state is the word's: none of them moves, which most questions never do.
  [[nodiscard]] static bool has_one_medium(const word_state& state, const set_word& word) noexcept {
    const slot_number slot = slot_of(word.kind);
    if (slot != 0 && slot != expected_slot) return false;
    return state.best[slot == 0 ? medium_of(word.kind) : gpu_medium] == state.alive;
  }
  void shrink(word_state& state, std::uint64_t ranks, std::uint32_t block);
  void move(word_state& state, const std::array<std::uint64_t, most_media>& best, std::uint32_t block);
  void finish(const word_state& state, std::uint64_t ranks, std::uint32_t block);

  forest_parts* parts_;
  std::size_t place_;
  std::array<double, most_media> weights_{};
  std::array<std::uint8_t, most_media> rank_of_medium_{};  ///< 0: the most worth
  std::vector<word_state> states_;
  std::size_t state_count_ = 0;
  std::vector<moved_rank> moved_;
  std::vector<prefix_row> rows_;
  std::size_t row_count_ = 0;
  std::vector<std::uint64_t> filter_;
  bool is_filtered_ = false;
  model_number model_ = 0;
  std::vector<block_holder> holders_;
  std::vector<passed_span> passed_;
  std::vector<set_word> expanded_;
  std::vector<std::uint64_t> hashes_;
};

/// Spans along the keys: those of each run on the way, up to the first block without holders.
template <class Visit>
void prefix_reader::for_spans(std::span<const std::uint64_t> keys, Visit&& visit) const {
  if (keys.empty()) return;
  std::uint32_t block = 0;
  const auto count = static_cast<std::uint32_t>(keys.size());
  std::uint32_t number = parts_->find_head(keys.front());
  while (number != no_run) {
    block_run& run = parts_->blocks.run(number);
    const span_word word(run.spans.load(std::memory_order_acquire));
    const std::uint32_t next = run.next.load(std::memory_order_acquire);
    if (next != no_run) __builtin_prefetch(&parts_->blocks.run(next));
    parts_->touch(run);
    holder_span single;
    const auto spans = word.spans(single);
    if (spans.empty()) return;
    const std::uint32_t most = std::min(spans.back().end, count - block);
    const std::uint32_t equal = parts_->common(run.base, keys.data() + block, most);
    std::uint32_t begin = 0;
    for (const holder_span& span : spans) {
      const std::uint32_t end = std::min(span.end, equal);
      if (begin >= end) break;
      if (span.set == 0 || !visit(block + begin, block + end, span.set)) return;
      begin = end;
    }
    block += equal;
    if (block >= count) return;
    const bool is_next = next != no_run && parts_->blocks.run(next).key == keys[block];
    number = is_next ? next : parts_->find_head(keys[block]);
  }
}

}  // namespace cenote::indexer
