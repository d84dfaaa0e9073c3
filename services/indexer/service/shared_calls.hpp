// The indexer's calls, answered from an index on a Redis server, its writer and the subscriber.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/indexer/backends/shared_facts.hpp"
#include "services/indexer/backends/shared_scorer.hpp"
#include "services/indexer/backends/shared_writer.hpp"
#include "services/indexer/service/common_calls.hpp"

namespace cenote::indexer {

/// The shared index and what belongs to it; all outlive the calls.
struct shared_index_parts {
  const redis::server_access& access;
  const token_processor& processor;
  const shared_facts& facts;
  shared_counters& counters;
  shared_writer& writer;
  std::uint32_t block_tokens = 0;  ///< of models that no publisher has named; 0: none
};

/// For one thread of a transport. score(), keys() and lookup() wait for the server, shared_scorer::question_limit at
/// most.
class shared_calls final : public common_calls {
 public:
  /// Errors: limit_exceeded: there are too many threads; system: no descriptor.
  [[nodiscard]] static result<std::unique_ptr<shared_calls>> make(const service_parts& parts,
                                                                  const shared_index_parts& index);

  result<score_answer> score(const score_question& question) override;
  result<block_keys_answer> keys(const score_question& question) override;
  result<void> lookup(std::span<const std::uint64_t> keys, const holder_visitor& visit) override;
  std::string_view medium_name(medium_number medium) const override;
  result<void> pods(const pod_visitor& visit) override;
  /// Errors: unsupported.
  result<std::unique_ptr<pod_dump>> dump(std::string_view pod) override;
  /// True of any pod: others may have written of it.
  result<bool> clear(std::string_view pod, std::string_view medium) override;
  /// Errors: unsupported.
  result<std::uint32_t> speculate(const speculation& sent) override;
  void write_metrics(std::string& out) override;
  std::string_view unready_reason() override;

 private:
  shared_calls(const service_parts& parts, const shared_index_parts& index, std::unique_ptr<shared_scorer> questions,
               question_counts& counts)
      : common_calls(parts, counts), index_(index), questions_(std::move(questions)) {}

  [[nodiscard]] result<void> check_lists(const score_question& question);

  shared_index_parts index_;
  std::unique_ptr<shared_scorer> questions_;
  std::vector<named_holder> holders_;
};

}  // namespace cenote::indexer
