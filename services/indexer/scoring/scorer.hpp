// Scores of pods for prompts, from the index and the keys of a prompt's blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "services/indexer/forest/prefix_reader.hpp"
#include "services/indexer/keys/token_processor.hpp"
#include "services/indexer/scoring/row_order.hpp"
#include "services/indexer/scoring/score_question.hpp"

namespace cenote::indexer {

/// Answers questions beside the index's writer. One thread at a time; it allocates only to grow. The index and the
/// processor outlive it.
class scorer {
 public:
  /// None if there are too many readers of the index.
  [[nodiscard]] static std::optional<scorer> open(forest& index, const token_processor& processor);

  void set_weights(const medium_weights& weights) noexcept { reader_.set_weights(weights); }

  /// The answer; an unknown model and a prompt of less than a block have none. Throws std::bad_alloc.
  [[nodiscard]] score_answer score(const score_question& question);
  /// Keys of the whole blocks of a prompt, of the model's smallest size; none where the model is unknown.
  [[nodiscard]] std::span<const std::uint64_t> keys_of(const score_question& question);

  /// Visits the holders of the keys up to the first that nothing holds; what is expected counts as the GPU's. Errors:
  /// limit_exceeded: they are more than question_limits::holders.
  [[nodiscard]] result<void> lookup(std::span<const std::uint64_t> keys, const holder_visitor& visit);
  /// Errors: invalid_argument: there are more lists of extra keys than blocks of the model's smallest size.
  [[nodiscard]] result<void> check_lists(const score_question& question) const;

  [[nodiscard]] prefix_reader& reader() noexcept { return reader_; }
  [[nodiscard]] const prefix_reader& reader() const noexcept { return reader_; }

 private:
  /// A row with what it is of.
  struct ranked_row {
    std::uint64_t pod_hash = 0;
    std::size_t name = 0;  ///< in names_
    std::uint32_t length = 0;
    pod_score score;
  };

  scorer(prefix_reader reader, const token_processor& processor) : reader_(std::move(reader)), processor_(&processor) {}

  void walk(const score_question& question, const model_facts& facts, std::uint32_t block_tokens);
  [[nodiscard]] std::size_t write_first_keys(const score_question& question, const key_space& space);
  void write_other_keys(const score_question& question, const key_space& space, std::size_t first);
  void add_rows(std::span<const prefix_row> rows, std::uint32_t block_tokens, std::uint32_t smallest);
  void keep_best();
  void find_degraded(model_number model);

  prefix_reader reader_;
  const token_processor* processor_;
  std::vector<std::uint64_t> keys_;
  std::vector<ranked_row> rows_;
  std::size_t row_count_ = 0;
  row_order order_;
  std::vector<std::uint32_t> worth_rows_;  ///< those with a score
  std::vector<pod_score> scores_;
  std::vector<std::string_view> degraded_;
  std::string degraded_names_;
  std::string names_;
  std::vector<named_holder> holders_;
  bool has_doubles_ = false;  ///< several rows may be of one pod
};

}  // namespace cenote::indexer
