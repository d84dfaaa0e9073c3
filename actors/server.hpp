// The node's Unix socket: attaching, descriptors, and the operator's commands.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>

#include "actors/admin_request.hpp"
#include "actors/messages.hpp"
#include "actors/pulse.hpp"
#include "transport/local/event_loop.hpp"
#include "transport/local/keeper_link.hpp"
#include "transport/local/socket.hpp"

namespace cenote {

/// What the server needs of the worker around it.
struct server_context {
  caf::actor_system& system;
  local::keeper_link& keeper;
  dram_tier_actor dram;
  node_actor node;
  std::uint64_t epoch = 0;
  std::chrono::system_clock::time_point node_started;
  std::uint32_t restarts = 0;
  dram::instance_number next_instance = 1;
  std::string socket_path;
  std::string metrics_address;  ///< HOST:PORT; empty: nobody listens there
  /// Of this worker's threads; each ended the work that threw it, and no more.
  std::shared_ptr<std::atomic<std::uint64_t>> exceptions = std::make_shared<std::atomic<std::uint64_t>>(0);
};

/// Serves connections on a thread of its own (an event_loop): that thread may wait for an actor or the keeper, for a
/// bounded time. A second loop turns the sessions' doorbells into messages, so that an attach never delays a commit.
/// A client is known by its process: its session ends with its own word (detach) or with the death seen through its
/// pidfd; a closed socket only takes back what the client is not using.
class server {
 public:
  static result<std::unique_ptr<server>> start(server_context context, config_ptr config);
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  ~server();

  /// A session that survived a restart. Before serve().
  void adopt(const std::shared_ptr<session_resources>& session);
  /// Accepts clients from now on.
  result<void> serve(unique_fd listener);
  /// Thread-safe.
  void reload(config_ptr config);
  /// Stops accepting and tells all clients that the node goes away. `keeper_is_dead`: nobody else holds the socket, so
  /// that a new node may take its path at once. Thread-safe.
  void drain(bool keeper_is_dead);
  /// What `cenote status --json` prints, and the metrics. Thread-safe; wait for the node's answer, for a bounded time.
  [[nodiscard]] result<std::string> status() const;
  [[nodiscard]] result<std::string> metrics() const;
  /// Has both threads asked for signs of life.
  void watch_over(pulse& all);
  /// Ends both threads.
  void stop();

 private:
  struct connection {
    unique_fd socket;
    local::peer_credentials peer;
    local::event_loop::watch_id watch = 0;
    std::uint64_t session = 0;
    std::optional<error> refused{};  ///< whatever it asks, this is the answer
  };
  struct attached {
    std::shared_ptr<session_resources> resources;
    session_actor actor;
    local::event_loop::watch_id doorbell = 0;
    local::event_loop::watch_id death = 0;
    int socket = -1;
    bool killed = false;
  };

  server(server_context context, config_ptr config);

  [[nodiscard]] result<report_ptr> report() const;
  template <class Answer, class Actor, class... Arguments>
  result<Answer> ask(const Actor& whom, Arguments... arguments);

  // All on the socket loop's thread.
  void accept_all();
  void turn_away(const error& why);
  void on_readable(int socket);
  void close(int socket);
  void handle(connection& from, local::frame frame);
  result<void> dispatch(connection& from, local::frame& frame);
  result<void> attach(connection& from, const local::frame& frame);
  result<void> check_client(const connection& from, const local::attach_request& request) const;
  result<dram::instance_number> find_or_make_instance(const instance_spec& spec);
  result<void> open(const std::shared_ptr<session_resources>& session, int socket);
  result<void> reattach(connection& from, const local::frame& frame);
  result<void> send_slabs(connection& from, const local::frame& frame);
  void end_session(std::uint64_t number, std::string_view why);
  result<std::string> admin(const connection& from, std::string_view text);
  result<std::string> clear(const admin_request& request);
  result<std::string> corrupt();
  void handler_failed(local::event_loop::watch_id id, const std::string& what);
  result<void> kill_session(std::uint64_t number);
  [[nodiscard]] bool may_attach(const connection& from) const;
  [[nodiscard]] bool may_administrate(const connection& from) const;
  [[nodiscard]] config_ptr config() const { return std::atomic_load(&config_); }

  server_context context_;
  config_ptr config_;
  std::unique_ptr<local::event_loop> sockets_;
  std::unique_ptr<local::event_loop> doorbells_;
  unique_fd listener_;
  unique_fd spare_;
  bool turning_away_ = false;
  local::event_loop::watch_id accepting_ = 0;
  std::map<int, connection> connections_;
  std::unordered_map<std::uint64_t, attached> sessions_;
  std::uint64_t next_session_ = 0;
  bool draining_ = false;
};

}  // namespace cenote
