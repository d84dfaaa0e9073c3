// Publishes what a node's tiers hold as KV events.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "tiers/block_changes/change_question.hpp"
#include "worker/publisher/event_batcher.hpp"

namespace cenote::publishing {

/// A tier whose changes are published.
struct change_source {
  event_medium medium = event_medium::CPU;
  /// Puts a question to it; must not block, and may be called on any thread. It is answered at any time, or never.
  std::function<void(std::shared_ptr<const change_question>)> ask;
};

struct node_publisher_options {
  std::string endpoint;
  std::string replay;  ///< empty: no questions are taken
  std::string name;    ///< of the node, in topics
};

/// A thread that owns the sockets. An endpoint that cannot be had is tried again every two seconds; what is published
/// meanwhile can be asked for later.
class publisher {
 public:
  /// `sources`: one of each medium at most, in the order of event_medium and without a gap. Errors: system.
  [[nodiscard]] static result<std::unique_ptr<publisher>> start(node_publisher_options options,
                                                                std::vector<change_source> sources);
  publisher(const publisher&) = delete;
  publisher& operator=(const publisher&) = delete;
  /// Ends the thread. Answers that come later are dropped.
  ~publisher();

 private:
  class publishing_loop;
  explicit publisher(std::unique_ptr<publishing_loop> running);

  std::unique_ptr<publishing_loop> loop_;
};

}  // namespace cenote::publishing
