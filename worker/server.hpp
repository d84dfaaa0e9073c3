// The node's Unix socket: connections, descriptors in flight, and who is asked for what.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "actors/data_path.hpp"
#include "actors/messages.hpp"
#include "actors/pulse.hpp"
#include "transport/local/event_loop.hpp"
#include "transport/local/outbox.hpp"
#include "transport/local/socket.hpp"
#include "worker/attachments.hpp"
#include "worker/connection.hpp"
#include "worker/hit_history.hpp"
#include "worker/node_facts.hpp"
#include "worker/operator_commands.hpp"
#include "worker/server_context.hpp"
#include "worker/shared_reports.hpp"

namespace cenote {

/// Serves connections on a thread of its own (an event_loop): that thread may wait for the keeper, for a bounded time,
/// and never for an actor or a client. The sessions' doorbells are heard elsewhere (data_path), so that an attach
/// never delays a commit.
///
/// Fairness: a connection is read one frame at a time, in turns with the others, and not at all while an answer to it
/// is on its way, unread, or held back. Who may not attach is turned away before anything of it is decoded.
/// Descriptors: what a client has not read counts against the daemon's user at the kernel. A reply with descriptors is
/// held back while an earlier one to that connection is unread, or too many to that user are; a connection that is
/// closed with unread descriptors is kept until they are gone.
///
/// A session whose attach reply nobody read ends with its connection: nobody has it.
class server {
 public:
  static result<std::unique_ptr<server>> start(server_context context, config_ptr config);
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  ~server();

  /// See attachments::expect(). Before serve().
  void expect(tier_number tier, const std::vector<std::uint64_t>& sessions);
  /// Takes what became of a device's tier, and sessions of it that survived a restart; from any thread, also when the
  /// server is gone.
  [[nodiscard]] std::function<void(device_news, std::vector<std::shared_ptr<session_resources>>,
                                   std::vector<std::uint64_t> suspects)>
  device_teller();
  /// A session that survived a restart. Before serve().
  void adopt(const std::shared_ptr<session_resources>& session);
  /// Ends the process of an adopted session that several workers died of (store::suspects).
  void end_suspect(std::uint64_t number);
  /// Accepts clients from now on; again: at another socket.
  result<void> serve(unique_fd listener);
  /// Thread-safe.
  void reload(config_ptr config);
  /// Tells all clients, and those that connect from now on, that the node goes away. `keeper_is_dead`: nobody else
  /// holds the socket, so that a new node may take its path at once. Thread-safe.
  void drain(bool keeper_is_dead);
  /// What `cenote status --json` prints, and the metrics. Thread-safe; wait for the node's answer, for a bounded time.
  [[nodiscard]] result<std::string> status();
  [[nodiscard]] result<std::string> metrics();
  /// The page /ui; as status().
  [[nodiscard]] result<std::string> page();
  /// Has both threads asked for signs of life.
  void watch_over(pulse& all);
  /// Ends both threads.
  void stop();

 private:
  using clock = local::event_loop::clock;
  /// A closed connection whose peer has not taken all descriptors.
  struct parting {
    unique_fd socket;
    local::outbox out;
    uid_t uid = 0;
  };
  server(server_context context, config_ptr config);

  /// Waits for a report, of which `make` makes the answer on the socket loop's thread.
  template <class Make>
  [[nodiscard]] auto answer_from_report(Make make) -> result<std::invoke_result_t<Make, const report_ptr&>>;
  [[nodiscard]] result<node_facts> facts();
  [[nodiscard]] node_facts facts_of(const report_ptr& report);
  void make_parts();

  // All on the socket loop's thread.
  void accept_some();
  void welcome(unique_fd accepted);
  [[nodiscard]] std::optional<error> reason_to_refuse(const connection& connection) const;
  [[nodiscard]] std::size_t connections_of(uid_t uid) const;
  [[nodiscard]] std::size_t all_connections() const;
  void turn_away(const error& why);
  void close_most_silent(const error& why);
  void on_event(int socket, std::uint32_t events);
  void read_one(connection& connection);
  void tell_refused(connection& connection);
  void set_interest(connection& connection);
  void close(int socket);
  void forget_session(int socket);
  void handle(connection& connection, local::frame frame);
  void answer(connection& connection, const local::frame_header& request, const result<void>& done);
  /// Null: it left meanwhile.
  [[nodiscard]] connection* find(const asker& who);
  /// `send` brings what was asked for, or says why not.
  void answer_deferred(const asker& to, const std::function<result<void>(connection&)>& send);
  result<void> dispatch(connection& connection, local::frame& frame);

  // Descriptors in flight, and what waits for them.
  [[nodiscard]] bool may_send_descriptors(connection& to, local::frame_type request);
  void look_again_soon();
  void look_again();
  void tick();
  void end_hit_span();

  // The operator.
  result<void> admin(connection& connection, const local::frame& frame);
  void reply(const asker& to, const result<std::string>& text);
  void handler_failed(local::event_loop::watch_id id, const std::string& what);
  [[nodiscard]] server_report own_report();

  /// Runs `work` on the socket loop and waits for its end. Not from that loop.
  void on_loop(const std::function<void()>& work) const;

  server_context context_;
  current_config config_;
  std::shared_ptr<local::event_loop> sockets_;
  std::unique_ptr<shared_reports> reports_;
  std::unique_ptr<attachments> sessions_;
  std::unique_ptr<operator_commands> commands_;
  unique_fd listener_;
  unique_fd spare_;
  bool turning_away_ = false;
  std::optional<error> farewell_;  ///< the node ends: the reason for which clients are refused
  local::event_loop::watch_id accepting_ = 0;
  std::map<int, connection> connections_;
  std::vector<parting> partings_;
  int looked_last_ = -1;  ///< whose held request was tried last: the next one goes first
  bool looking_again_ = false;
  std::unique_ptr<local::alarm> next_look_;
  std::unique_ptr<local::alarm> next_tick_;
  server_report counters_;
  hit_history hits_;
  clock::time_point next_hits_{};  ///< when the span under way ends
};

}  // namespace cenote
