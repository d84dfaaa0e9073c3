// The work of the writer for a request, piece by piece.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string_view>

#include "core/error.hpp"
#include "services/manager/writes/ledger.hpp"
#include "services/manager/writes/manager_state.hpp"
#include "services/manager/writes/registry_state.hpp"
#include "services/manager/writes/removal_queue.hpp"
#include "services/manager/writes/sessions.hpp"
#include "services/manager/writes/write_settings.hpp"
#include "transport/manager/answer_code.hpp"

namespace cenote::manager {

/// The parts that commands work on.
struct write_parts {
  manager_state& state;
  ledger& changes;
  removal_queue& removals;
  write_sessions& sessions;
  const write_settings& settings;
  const worker_factory& make_worker;
  bool& has_new_registry;  ///< readers get another view after this round
};

/// Keys that a command may still look at in this round, of all commands together; and the time of the round.
struct write_round {
  static constexpr std::size_t piece = 4'096;

  std::size_t keys = piece;
  round_time now{};
};

/// A request that changes something. The writer calls advance() once a round until it is complete, commits the round,
/// and lets it answer. The writer's alone.
class write_command {
 public:
  write_command() = default;
  write_command(const write_command&) = delete;
  write_command& operator=(const write_command&) = delete;
  virtual ~write_command() = default;

  /// True: complete; the answer is due once the round is in the journal.
  [[nodiscard]] virtual bool advance(write_parts& parts, write_round& round) = 0;
  /// Answers: the outcome, or io_error with the reason of a round that was not written.
  virtual void answer(const result<>& committed) = 0;
  /// Whether it made a worker of a storage: then it answers once that is probed, so that a write there may follow.
  [[nodiscard]] virtual bool has_new_worker() const noexcept { return false; }
  /// The instance whose requests come in turn with those of others.
  [[nodiscard]] virtual std::string_view instance() const noexcept = 0;
};

/// Receives the outcome of a command, once.
template <class T>
using outcome_receiver = std::function<void(rpc_outcome<T>)>;

/// The rpc_refusal of a change that is not in the journal.
[[nodiscard]] inline std::unexpected<rpc_refusal> refuse_unwritten(const error& reason) {
  if (reason.code() == error_code::node_restarting) return refuse(answer_code::service_not_ready, reason.message());
  return refuse(answer_code::io_error,
                "the journal's store did not take the change: " + reason.message() + "; ask again, or finish again");
}

}  // namespace cenote::manager
