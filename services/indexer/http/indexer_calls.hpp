// The calls of the indexer as its transports make them.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "services/indexer/scoring/score_question.hpp"

namespace cenote::indexer {

struct block_keys_answer {
  std::span<const std::uint64_t> keys{};
  std::uint32_t block_tokens = 0;  ///< 0: the model is not known
};

using token_receiver = std::function<void(result<std::vector<std::uint32_t>>)>;

/// The state of a pod's rank.
struct pod_status {
  std::string_view pod{};
  std::uint16_t dp_rank = 0;
  std::string_view model{};
  std::string_view publisher{};
  std::string_view state{};                 ///< connecting, replaying, live, degraded, silent
  std::optional<std::uint64_t> last_seq{};  ///< none: no batch was applied
  std::array<std::uint64_t, most_media> blocks{};
  std::uint64_t gaps = 0;
  std::uint64_t replayed = 0;  ///< batches
  double behind_s = 0;         ///< between an event's time and its application
};
using pod_visitor = std::function<void(const pod_status&)>;

/// Consecutive blocks of a pod's rank in a medium.
struct dumped_blocks {
  std::uint16_t dp_rank = 0;
  medium_number medium = 0;
  std::string_view model{};
  std::uint32_t block_tokens = 0;
  std::optional<std::uint64_t> parent_key{};
  std::span<const std::uint64_t> keys{};
  std::span<const std::uint64_t> hashes{};  ///< of the engine, one a key; empty: it has none for them
};
using dump_visitor = std::function<void(const dumped_blocks&)>;

/// All blocks of a pod, parents first, in parts. It owns what it visits, and is used by the thread of its calls.
class pod_dump {
 public:
  pod_dump() = default;
  pod_dump(const pod_dump&) = delete;
  pod_dump& operator=(const pod_dump&) = delete;
  virtual ~pod_dump() = default;

  /// Visits the next blocks, about a thousand, or none if they are not there yet; true while there are more.
  virtual bool next(const dump_visitor& visit) = 0;
};

/// A publisher that is added at run time; empty texts are as if they were not there.
struct publisher_settings {
  std::string_view name{};
  std::string_view endpoint{};  ///< ZMQ's, "tcp://10.0.0.7:5557"
  std::string_view replay{};
  std::string_view pod{};
  std::string_view model{};
  std::string_view node{};
  std::string_view engine{};
};

/// A prompt that a router has just sent to `question.pods`.
struct speculation {
  score_question question{};
  std::optional<std::chrono::milliseconds> ttl{};  ///< none: the configured one
};

/// The indexer as a transport asks it. One object for each thread of a transport, which owns its scratch memory: what
/// a call gives is valid until the next call. No call blocks, but that questions to a shared index wait for its server
/// a moment.
class indexer_calls {
 public:
  indexer_calls() = default;
  indexer_calls(const indexer_calls&) = delete;
  indexer_calls& operator=(const indexer_calls&) = delete;
  virtual ~indexer_calls() = default;

  /// Errors: invalid_argument (more lists of extra keys than blocks).
  [[nodiscard]] virtual result<score_answer> score(const score_question& question) = 0;
  /// The keys of the blocks of `question.tokens`. Errors: as score().
  [[nodiscard]] virtual result<block_keys_answer> keys(const score_question& question) = 0;
  /// Visits the holders of the keys up to the first that nothing holds.
  [[nodiscard]] virtual result<void> lookup(std::span<const std::uint64_t> keys, const holder_visitor& visit) = 0;
  /// The name of a medium, "gpu"; empty if the number has none.
  [[nodiscard]] virtual std::string_view medium_name(medium_number medium) const = 0;
  /// Calls `done` once with the tokens of a text, here or later on any thread. Errors: not_running, deadline_exceeded
  /// (no tokenizer answers), invalid_argument (it does not know the model).
  virtual void tokenize(std::string_view model, std::string_view prompt, token_receiver done) = 0;

  [[nodiscard]] virtual result<void> pods(const pod_visitor& visit) = 0;
  /// Null if there is no such pod.
  [[nodiscard]] virtual result<std::unique_ptr<pod_dump>> dump(std::string_view pod) = 0;
  /// Takes all blocks from a pod, in one medium or (empty) all. False if there is no such pod; invalid_argument: no
  /// such medium.
  [[nodiscard]] virtual result<bool> clear(std::string_view pod, std::string_view medium) = 0;
  /// The number of blocks that count as held now. Errors: as score(); limit_exceeded.
  [[nodiscard]] virtual result<std::uint32_t> speculate(const speculation& sent) = 0;

  /// Errors: invalid_argument; spec_mismatch (the name is taken); limit_exceeded.
  [[nodiscard]] virtual result<void> add_publisher(const publisher_settings& settings) = 0;
  /// False if there is no publisher of this name.
  [[nodiscard]] virtual result<bool> remove_publisher(std::string_view name) = 0;

  /// Appends the metrics in Prometheus' text format.
  virtual void write_metrics(std::string& out) = 0;
  /// The reason for which the index is not complete yet; empty: it is ready.
  [[nodiscard]] virtual std::string_view unready_reason() = 0;
};

}  // namespace cenote::indexer
