// The sessions of a node's clients: how they begin, come back, ask for slabs, and end.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/messages.hpp"
#include "core/unique_fd.hpp"
#include "transport/local/attach.hpp"
#include "transport/local/event_loop.hpp"
#include "worker/connection.hpp"
#include "worker/server_context.hpp"

namespace cenote {

/// All on the socket loop's thread, which waits here for an actor or the keeper, for a bounded time.
///
/// A client is its process, not its connection: a session ends when the client detaches, or when the pidfd says that
/// its process is dead. When its socket is closed, only blocks that it is not using are taken back, and it may
/// reattach.
class attachments {
 public:
  /// What becomes of connections, by their sockets.
  struct connection_hooks {
    std::function<void(int socket)> ended;     ///< its session is no more
    std::function<void(int socket)> replaced;  ///< another connection has its session now: it is closed
  };

  /// What is given by reference outlives this.
  attachments(server_context& context, const current_config& config, local::event_loop& sockets, connection_hooks hooks)
      : context_(context), config_(config), sockets_(sockets), hooks_(std::move(hooks)) {}

  result<void> attach(connection& connection, const local::frame& frame);
  result<void> reattach(connection& connection, const local::frame& frame);
  result<void> send_slabs(connection& connection, const local::frame& frame);
  /// Frees what the session holds; what a device may still be writing for it only after `gpu.quarantine`.
  void end(std::uint64_t number, std::string_view why);
  /// Ends a session for the operator: its calls are refused from now on, its blocks are freed when its process is dead.
  result<void> kill(std::uint64_t number);

  /// Takes over a session that survived a restart of the worker.
  void adopt(const std::shared_ptr<session_resources>& session);
  /// Ends the process of an adopted session that several workers died of (store::suspects).
  void end_suspect(std::uint64_t number);

  /// A connection was closed. That is not its client's death: what the client is not using goes back.
  void connection_closed(std::uint64_t number, int socket);
  /// Nobody attaches any more; all clients are told that the node goes away.
  void drain();
  /// Ends sessions that were set aside for long enough, and tells keeper and actors again which sessions ended, where
  /// they may not have heard it.
  void retry();

 private:
  struct attached {
    std::shared_ptr<session_resources> resources;
    session_actor actor;
    local::event_loop::watch_id doorbell = 0;
    local::event_loop::watch_id death = 0;
    int socket = -1;  ///< of its connection; -1: it has none
    bool killed = false;
    std::optional<std::chrono::steady_clock::time_point>
        set_aside_until{};  ///< its process is dead, its device perhaps not
  };
  struct fresh_session {
    std::shared_ptr<session_resources> session;
    unique_fd ear;  ///< the client's end of the completion doorbell
  };

  template <class Answer, class Actor, class... Arguments>
  result<Answer> ask(const Actor& whom, Arguments... arguments);

  void end_unheard_of(const connection& connection, const local::attach_request& request);
  result<void> check_client(const connection& connection, const local::attach_request& request) const;
  result<void> check_limits(const connection& connection, const config::node_config& now) const;
  result<blocks::instance_number> find_or_make_instance(const instance_spec& spec, uid_t owner);
  result<blocks::instance_number> make_instance(const instance_spec& spec, uid_t owner);
  result<fresh_session> make_resources(const connection& connection, const local::attach_request& request);
  [[nodiscard]] std::uint64_t number_session();
  result<void> open(const std::shared_ptr<session_resources>& session, int socket);
  void set_aside(std::uint64_t number, attached& session, std::string_view why);
  void end_set_aside();
  void release(std::uint64_t number);
  void drop_entry(std::uint64_t number);

  server_context& context_;
  const current_config& config_;
  local::event_loop& sockets_;
  connection_hooks hooks_;
  std::unordered_map<std::uint64_t, attached> sessions_;
  std::uint32_t last_session_ = 0;         ///< low half of the number of the session that attached last
  std::vector<std::uint64_t> undropped_;   ///< ended sessions that the keeper may still have
  std::vector<std::uint64_t> unreleased_;  ///< … that the node's actor may still have
  bool draining_ = false;
};

}  // namespace cenote
