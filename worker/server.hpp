// The node's Unix socket: attaching, descriptors, and the operator's commands.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "actors/data_path.hpp"
#include "actors/messages.hpp"
#include "actors/pulse.hpp"
#include "transport/local/event_loop.hpp"
#include "transport/local/keeper_link.hpp"
#include "transport/local/outbox.hpp"
#include "transport/local/socket.hpp"
#include "worker/admin_request.hpp"
#include "worker/shared_reports.hpp"

namespace cenote {

/// What `status` shows of the socket.
struct server_report {
  std::uint64_t connections = 0;
  std::uint64_t closing = 0;                ///< closed, but kept until their descriptors are read
  std::uint64_t descriptors_in_flight = 0;  ///< sent, and not read
  std::uint64_t turned_away = 0;            ///< connections of who may not attach, or has too many
  std::uint64_t held_back = 0;              ///< requests that waited until descriptors were read
  std::uint64_t unread = 0;                 ///< connections that were closed because they did not read
  std::uint64_t failures = 0;               ///< requests that an exception ended
};

/// What the server needs of the worker around it.
struct server_context {
  caf::actor_system& system;
  local::keeper_link& keeper;
  data_path& path;
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
  /// How far memory is touched; from any thread.
  std::function<dram::populate_status()> populated = [] { return dram::populate_status(); };
};

/// Serves connections on a thread of its own (an event_loop): that thread may wait for an actor or the keeper, for a
/// bounded time, and never for a client. The sessions' doorbells are heard elsewhere (data_path), so that an attach
/// never delays a commit.
///
/// Fairness: a connection is read one frame at a time, in turns with the others, and not at all while an answer to it
/// is on its way, unread, or held back. Who may not attach is turned away before anything of it is decoded.
/// Descriptors: what a client has not read counts against the daemon's user at the kernel. A reply with descriptors is
/// held back while an earlier one to that connection is unread, or too many to that user are; a connection that is
/// closed with unread descriptors is kept until they are gone.
///
/// A client is known by its process: its session ends with its own word (detach) or with the death seen through its
/// pidfd; a closed socket only takes back what the client is not using. A session whose attach reply nobody read ends
/// with its connection: nobody has it.
class server {
 public:
  static result<std::unique_ptr<server>> start(server_context context, config_ptr config);
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  ~server();

  /// A session that survived a restart. Before serve().
  void adopt(const std::shared_ptr<session_resources>& session);
  /// Ends the process of an adopted session that several workers died of (store::suspects).
  void end_suspect(std::uint64_t number);
  /// Accepts clients from now on.
  result<void> serve(unique_fd listener);
  /// Thread-safe.
  void reload(config_ptr config);
  /// Stops accepting and tells all clients that the node goes away. `keeper_is_dead`: nobody else holds the socket, so
  /// that a new node may take its path at once. Thread-safe.
  void drain(bool keeper_is_dead);
  /// What `cenote status --json` prints, and the metrics. Thread-safe; wait for the node's answer, for a bounded time.
  [[nodiscard]] result<std::string> status();
  [[nodiscard]] result<std::string> metrics();
  /// Has both threads asked for signs of life.
  void watch_over(pulse& all);
  /// Ends both threads.
  void stop();

 private:
  using clock = local::event_loop::clock;
  struct connection {
    unique_fd socket;
    local::peer_credentials peer;
    local::outbox out;
    local::event_loop::watch_id watch = 0;
    std::uint64_t session = 0;
    std::optional<error> refused{};      ///< whatever it asks, this is the answer
    std::optional<local::frame> held{};  ///< a request that waits until descriptors were read
    bool answering = false;              ///< an answer is being made elsewhere
    bool attach_unread = false;          ///< as far as is known: nothing came since the attach reply
    bool reads = true;                   ///< what the loop was told to wait for
    bool writes = false;
    clock::time_point heard = clock::now();  ///< its last frame, or since when it waits
  };
  /// A closed connection whose peer has not taken all descriptors.
  struct parting {
    unique_fd socket;
    local::outbox out;
    uid_t uid = 0;
  };
  /// Who waits for an answer that is made elsewhere.
  struct asker {
    int socket = -1;
    local::event_loop::watch_id watch = 0;
    local::frame_header request;
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

  struct whole_report {
    report_ptr node;
    server_report server;
  };
  [[nodiscard]] result<whole_report> report();
  template <class Answer, class Actor, class... Arguments>
  result<Answer> ask(const Actor& whom, Arguments... arguments);

  // All on the socket loop's thread.
  void accept_some();
  void welcome(unique_fd accepted);
  [[nodiscard]] std::optional<error> reason_to_refuse(const connection& from) const;
  [[nodiscard]] std::size_t connections_of(uid_t uid) const;
  [[nodiscard]] std::size_t all_connections() const;
  void turn_away(const error& why);
  void on_event(int socket, std::uint32_t events);
  void read_one(connection& from);
  void tell_refused(connection& from);
  void set_interest(connection& of);
  void close(int socket);
  void handle(connection& from, local::frame frame);
  void answer(connection& from, const local::frame_header& request, const result<void>& done);
  result<void> dispatch(connection& from, local::frame& frame);

  // Descriptors in flight, and what waits for them.
  [[nodiscard]] bool may_send_descriptors(connection& to, local::frame_type request);
  void look_again_soon();
  void look_again();
  void tick();

  // Attaching.
  struct fresh_session {
    std::shared_ptr<session_resources> session;
    unique_fd ear;  ///< the client's end of the completion doorbell
  };
  result<void> attach(connection& from, const local::frame& frame);
  void end_unheard_of(const connection& from, const local::attach_request& request);
  result<void> check_client(const connection& from, const local::attach_request& request) const;
  result<void> check_limits(const connection& from, const config::node_config& now) const;
  result<void> check_group(const connection& from, const local::attach_request& request,
                           const config::node_config& now) const;
  result<dram::instance_number> find_or_make_instance(const instance_spec& spec, uid_t owner);
  result<fresh_session> make_resources(const connection& from, const local::attach_request& request);
  [[nodiscard]] std::uint64_t number_session();
  result<void> open(const std::shared_ptr<session_resources>& session, int socket);
  result<void> reattach(connection& from, const local::frame& frame);
  result<void> send_slabs(connection& from, const local::frame& frame);
  void end_session(std::uint64_t number, std::string_view why);
  void release(std::uint64_t number);
  void drop_entry(std::uint64_t number);

  // The operator.
  result<void> admin(connection& from, const local::frame& frame);
  result<std::string> administrate(const admin_request& request);
  asker defer(connection& from, const local::frame_header& request);
  void reply(const asker& to, const result<std::string>& text);
  void send_status(const asker& to);
  result<void> clear(connection& from, const local::frame_header& asked, const admin_request& request);
  result<void> corrupt(connection& from, const local::frame_header& asked);
  template <class... Arguments>
  void count_blocks(const asker& to, const char* what, Arguments... arguments);
  void handler_failed(local::event_loop::watch_id id, const std::string& what);
  result<void> kill_session(std::uint64_t number);
  [[nodiscard]] bool may_attach(const connection& from) const;
  [[nodiscard]] bool may_administrate(const connection& from) const;
  [[nodiscard]] config_ptr config() const { return std::atomic_load(&config_); }
  [[nodiscard]] server_report own_report();

  /// Runs `work` on the socket loop and waits for its end. Not from that loop.
  void on_loop(const std::function<void()>& work) const;

  server_context context_;
  config_ptr config_;
  std::shared_ptr<local::event_loop> sockets_;
  std::unique_ptr<shared_reports> reports_;
  unique_fd listener_;
  unique_fd spare_;
  bool turning_away_ = false;
  local::event_loop::watch_id accepting_ = 0;
  std::map<int, connection> connections_;
  std::vector<parting> partings_;
  int looked_last_ = -1;  ///< whose held request was tried last: the next one goes first
  bool looking_again_ = false;
  std::vector<std::uint64_t> undropped_;   ///< sessions that the keeper may still have
  std::vector<std::uint64_t> unreleased_;  ///< … that the tier may still have
  std::uint64_t rendered_turn_ = 0;        ///< of the report that rendered_text_ was made from
  std::string rendered_text_;
  server_report counters_;
  std::unordered_map<std::uint64_t, attached> sessions_;
  std::uint32_t last_session_ = 0;  ///< low half of the number of the session that attached last
  bool draining_ = false;
};

}  // namespace cenote
