// The indexer's calls, answered from the index in memory, its writer and the subscriber.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/indexer/scoring/scorer.hpp"
#include "services/indexer/service/common_calls.hpp"
#include "services/indexer/service/dump_places.hpp"
#include "services/indexer/service/indexer_writer.hpp"
#include "services/indexer/service/question_counts.hpp"
#include "services/indexer/service/shared_weights.hpp"

namespace cenote::indexer {

/// The index in memory and what belongs to it; all outlive the calls.
struct memory_parts {
  forest& index;
  const token_processor& processor;
  indexer_writer& writer;
  const shared_weights& weights;
  dump_places& dumps;
};

/// For one thread of a transport.
class service_calls final : public common_calls {
 public:
  /// Errors: limit_exceeded: the index has too many readers.
  [[nodiscard]] static result<std::unique_ptr<service_calls>> make(const service_parts& parts,
                                                                   const memory_parts& memory);

  result<score_answer> score(const score_question& question) override;
  result<block_keys_answer> keys(const score_question& question) override;
  result<void> lookup(std::span<const std::uint64_t> keys, const holder_visitor& visit) override;
  std::string_view medium_name(medium_number medium) const override;
  result<void> pods(const pod_visitor& visit) override;
  result<std::unique_ptr<pod_dump>> dump(std::string_view pod) override;
  result<bool> clear(std::string_view pod, std::string_view medium) override;
  result<std::uint32_t> speculate(const speculation& sent) override;
  result<bool> remove_publisher(std::string_view name) override;
  void write_metrics(std::string& out) override;

 private:
  service_calls(const service_parts& parts, const memory_parts& memory, scorer questions, question_counts& counts)
      : common_calls(parts, counts), memory_(memory), questions_(std::move(questions)) {}

  [[nodiscard]] result<void> check_lists(const score_question& question);
  [[nodiscard]] bool has_pod(std::string_view pod);
  /// Has the writer do something, and waits until it is done, a moment at most: what an operator asks for is done when
  /// it is answered, unless the writer is at a large batch.
  [[nodiscard]] result<void> carry_out(indexer_writer::writer_task action, std::size_t bytes);

  memory_parts memory_;
  scorer questions_;
  std::uint64_t weights_version_ = 0;
};

}  // namespace cenote::indexer
