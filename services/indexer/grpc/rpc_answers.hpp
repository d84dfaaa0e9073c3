// Answers of the indexer to calls over gRPC.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "services/indexer/grpc/calls_pool.hpp"
#include "services/indexer/grpc/pod_watch.hpp"
#include "transport/grpc/call_handler.hpp"

namespace cenote::indexer {

/// Answers calls by their methods. Both outlive it.
class rpc_answers final : public rpc::call_handler {
 public:
  rpc_answers(calls_pool& pool, pod_watch& watch) noexcept : pool_(pool), watch_(watch) {}

  [[nodiscard]] bool has_method(std::string_view method) const noexcept override;
  void handle(std::string_view method, const std::shared_ptr<rpc::open_call>& call) override;

 private:
  using call_pointer = std::shared_ptr<rpc::open_call>;
  struct route;
  class text_question;
  static std::span<const route> routes() noexcept;

  void get_pod_scores(const call_pointer& call);
  void score_tokens(const call_pointer& call);
  void look_up(const call_pointer& call);
  void watch_pods(const call_pointer& call);

  calls_pool& pool_;
  pod_watch& watch_;
};

}  // namespace cenote::indexer
