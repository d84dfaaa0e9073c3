// Scores of pods for prompts, from a shared index.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/error.hpp"
#include "services/indexer/backends/shared_facts.hpp"
#include "services/indexer/keys/token_processor.hpp"
#include "services/indexer/scoring/score_question.hpp"
#include "transport/redis/breaker.hpp"
#include "transport/redis/waiting_client.hpp"

namespace cenote::indexer {

/// A pod that has a block in a tier.
struct shared_holder {
  std::string_view pod{};
  medium_number medium = 0;
};

/// Answers one thread's questions, over a connection of its own; that thread waits for the server, for a question as
/// long as `question_limit` at most. While the server is away all answers are empty, and most of them at once.
class shared_scorer {
 public:
  static constexpr std::chrono::milliseconds question_limit{250};

  /// All outlive it. `block_tokens`: of models that no publisher has named; 0: none. Errors: system: no descriptor.
  [[nodiscard]] static result<std::unique_ptr<shared_scorer>> make(redis::server_access access,
                                                                   const token_processor& keys,
                                                                   const shared_facts& facts, shared_counters& counters,
                                                                   std::uint32_t block_tokens);
  shared_scorer(const shared_scorer&) = delete;
  shared_scorer& operator=(const shared_scorer&) = delete;
  ~shared_scorer() = default;

  /// Valid until the next call, as all answers.
  [[nodiscard]] score_answer score(const score_question& question);
  /// The keys of a prompt's blocks, of the model's smallest size; without blocks if the model is unknown.
  [[nodiscard]] std::span<const std::uint64_t> keys_of(const score_question& question);
  /// Tokens of the smallest blocks of a model or adapter; 0: it is unknown.
  [[nodiscard]] std::uint32_t block_tokens_of(const score_question& question);
  /// Visits the holders of the keys up to the first that nothing holds.
  void lookup(std::span<const std::uint64_t> keys, const std::function<void(std::span<const shared_holder>)>& visit);
  /// Empty: the number has no name.
  [[nodiscard]] std::string_view medium_name(medium_number medium) const noexcept;

 private:
  /// A field as it was read.
  struct known_field {
    std::uint32_t pod = 0;  ///< in pods_
    medium_number medium = 0;
  };
  /// A pod's prefix while it is looked at.
  struct pod_row {
    std::uint32_t pod = 0;
    bool is_alive = true;
    std::size_t last_block = 0;  ///< the number of the last one that it has, from 1
    medium_number medium = 0;
    double weight = 0;  ///< the best one of that block
    pod_score score{};
  };
  using field_list = std::vector<known_field>;

  shared_scorer(redis::waiting_client client, const token_processor& keys, const shared_facts& facts,
                shared_counters& counters, std::uint32_t block_tokens);

  void refresh();
  [[nodiscard]] std::vector<std::uint32_t> sizes_of(const score_question& question);
  void walk(const score_question& question, std::uint32_t block_tokens, double scale);
  [[nodiscard]] std::size_t write_group(const score_question& question, std::uint32_t block_tokens, std::size_t first);
  [[nodiscard]] bool add_block(const score_question& question, const field_list& fields, std::size_t number,
                               std::size_t first_row);
  void hold(pod_row& row, std::size_t number, medium_number medium) const;
  [[nodiscard]] pod_row* row_of(const score_question& question, std::uint32_t pod, std::size_t first_row,
                                std::size_t number);
  [[nodiscard]] bool is_wanted(const score_question& question, std::string_view pod) const;
  void keep_best();
  /// Fields of each of the keys, in order; false: there is no answer.
  [[nodiscard]] bool ask(std::span<const std::uint64_t> keys);
  [[nodiscard]] bool run(std::span<const std::string> commands, const redis::waiting_client::reply_receiver& receiver);
  void read_fields(const redis::server_reply& reply, field_list& fields);
  [[nodiscard]] std::optional<known_field> field_of(std::string_view text);
  [[nodiscard]] std::optional<medium_number> medium_of(std::string_view tier);
  [[nodiscard]] double weight_of(medium_number medium) const;

  redis::waiting_client client_;
  const token_processor& processor_;
  const shared_facts& facts_;
  shared_counters& counters_;
  const std::uint32_t block_tokens_;
  redis::breaker breaker_;
  redis::steady_time deadline_{};
  bool is_answered_ = true;  ///< all of the present question so far

  std::shared_ptr<const fact_sheet> sheet_;
  std::uint64_t version_ = 0;
  std::unordered_map<std::string, std::pair<std::vector<std::uint32_t>, redis::steady_time>> foreign_sizes_;
  std::vector<std::string> media_;
  double scale_ = 1;                                                    ///< of the size of blocks that is looked at
  std::uint32_t size_ = 0;                                              ///< of those blocks
  std::unordered_map<std::string, std::optional<known_field>> fields_;  ///< nothing: no entry of a pod
  std::unordered_map<std::string, std::uint32_t> pod_numbers_;
  std::vector<std::string> pods_;

  std::vector<std::uint64_t> keys_;
  std::vector<field_list> replies_;
  std::vector<pod_row> rows_;
  std::unordered_map<std::uint32_t, std::size_t> row_places_;  ///< of the present size, by pod
  std::vector<pod_score> scores_;
  std::vector<std::string_view> degraded_;
  std::vector<shared_holder> holders_;
};

}  // namespace cenote::indexer
