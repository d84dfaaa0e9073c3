// The sessions of a node's clients: how they begin, come back, ask for slabs, and end.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/messages.hpp"
#include "core/shared_bound.hpp"
#include "core/unique_fd.hpp"
#include "transport/local/attach.hpp"
#include "transport/local/event_loop.hpp"
#include "worker/connection.hpp"
#include "worker/gpu_watch.hpp"
#include "worker/quarantine.hpp"
#include "worker/server_context.hpp"

namespace cenote {

/// All on the socket loop's thread. An attach asks the actors one question after the other, and its connection waits
/// without the thread: others are served while an instance is made. A reattach, a query for slabs, the end of a session
/// and the takeover of one wait in the same way: no actor is waited for. The thread waits for words to the keeper, for
/// a bounded time.
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
    /// Has the answer sent that it waits for; not if it left meanwhile.
    std::function<void(const asker& to, const std::function<result<void>(connection&)>& send)> answer;
  };

  /// What is given by reference outlives this.
  attachments(server_context& context, const current_config& config, std::shared_ptr<local::event_loop> sockets,
              connection_hooks hooks)
      : context_(context), config_(config), sockets_(std::move(sockets)), hooks_(std::move(hooks)) {}

  /// Success: it is answered later.
  result<void> attach(connection& connection, const local::frame& frame);
  /// Attaches that were answered with an error.
  [[nodiscard]] std::uint64_t refusals() const noexcept { return refusals_; }
  result<void> reattach(connection& connection, const local::frame& frame);
  result<void> send_slabs(connection& connection, const local::frame& frame);
  /// Success: it is answered later.
  result<void> send_unconfirmed(connection& connection, const local::frame& frame);
  /// Nothing is answered but a refusal.
  result<void> take_spans(const connection& connection, const local::frame& frame);
  /// Success: it is answered when what the session held is free.
  result<void> detach(connection& connection, const local::frame_header& request);
  /// Frees what the session holds; what a device may still be writing for it only after its quarantine.
  void end(std::uint64_t number, std::string_view why);
  /// Ends a session for the operator: its calls are refused from now on, its blocks are freed when its process is dead.
  result<void> kill(std::uint64_t number);

  /// Sessions that the last worker had on a device come when its tier is open: until then their clients wait.
  void expect(tier_number tier, const std::vector<std::uint64_t>& sessions);
  /// Says what became of a device's tier. One that is away ends the use of its sessions.
  void take_device(const device_news& news);
  /// Takes over a session that survived a restart of the worker. Until the node's actor knows it, its client waits.
  void adopt(const std::shared_ptr<session_resources>& session);
  /// Ends the process of an adopted session that several workers died of (store::suspects).
  void end_suspect(std::uint64_t number);

  /// A connection was closed: its attach ends. With a session that is not its client's death: what the client is not
  /// using goes back.
  void connection_closed(std::uint64_t number, int socket);
  /// Nobody attaches any more, also not who waits for it; all clients are told that the node goes away.
  void drain(error reason);
  /// Once a second: refuses who waits for too long, ends sessions whose quarantine is over, and tells keeper
  /// and actors again which sessions ended, where they may not have heard it.
  void tick();

 private:
  struct attached {
    std::shared_ptr<session_resources> resources;
    session_actor actor;
    local::event_loop::watch_id doorbell = 0;
    local::event_loop::watch_id death = 0;
    int socket = -1;  ///< of its connection; -1: it has none
    bool killed = false;
    std::optional<quarantine> set_aside{};  ///< it is over, but its device may still write
    bool has_left_groups = false;           ///< since its tier ended it
    bool is_listed = false;                 ///< the driver said so, after its time
  };
  /// A session of an earlier worker that is not taken over yet.
  struct coming_session {
    tier_number tier = 0;
    std::shared_ptr<session_resources> resources{};  ///< null: its tier is being opened
  };
  /// An attach under way: first its instance is opened, then the tier and the node are told of the session. At each
  /// time one question is open.
  struct opening {
    asker to;
    local::peer_credentials peer;
    local::attach_request request;
    std::string device{};  ///< whose tier it is; empty: DRAM
    unique_fd pidfd;
    std::shared_ptr<instance_request> wanted;
    opened_instance_ptr instance;
    std::shared_ptr<session_resources> session;     ///< null: not made yet
    unique_fd ear;                                  ///< the client's end of the completion doorbell
    local::event_loop::clock::time_point deadline;  ///< of the open question
    bool has_ended = false;  ///< it is answered; what is under way for its session is taken back when it is done
  };
  using opening_map = std::unordered_map<std::uint64_t, opening>;

  /// A connection that waits for one answer without the thread.
  struct deferred {
    asker client;
    local::event_loop::clock::time_point deadline;
  };

  /// A session that has ended and that the node's actor has not freed yet.
  struct release_question {
    local::event_loop::clock::time_point deadline;
    std::optional<asker> client{};  ///< detached, and waits for the answer
  };

  template <class Answer, class Actor, class... Arguments>
  void ask_for(connection& waits, const local::frame_header& request,
               std::function<result<void>(connection&, const Answer&)> send, const Actor& actor,
               Arguments... arguments);

  template <class Answer>
  [[nodiscard]] std::function<void(const result<Answer>&)> await_answer(
      connection& client, const local::frame_header& request,
      std::function<result<void>(connection&, const Answer&)> send);
  template <class Answer, class Take>
  [[nodiscard]] std::function<void(const result<Answer>&)> on_loop(Take take);

  /// The next question of an attach; `next` hears the answer.
  template <class Answer, class Actor, class... Arguments>
  void ask_for(std::uint64_t ticket, void (attachments::*next)(opening_map::iterator, const Answer&), const Actor& whom,
               Arguments... arguments);
  template <class Answer>
  void hear(std::uint64_t ticket, void (attachments::*next)(opening_map::iterator, const Answer&),
            const result<Answer>& answer);
  result<void> begin_attach(connection& connection, const local::frame& frame);
  void end_late();
  void whole_opened(opening_map::iterator its, const opened_instance_ptr& whole);
  void instance_opened(opening_map::iterator its, const opened_instance_ptr& instance);
  void session_added(opening_map::iterator its, const outcome& added);
  void session_opened(opening_map::iterator its, const session_actor& actor);
  result<void> send_session(connection& connection, opening& ready);
  void refuse(opening_map::iterator its, const error& why);
  void discard(opening_map::iterator its);

  [[nodiscard]] result<std::string> find_device(const local::attach_request& request) const;
  [[nodiscard]] dram_tier_actor top_of(tier_number tier) const;
  [[nodiscard]] dram_tier_actor top_of(const session_resources& session) const;
  void tell_disconnected(const session_resources& session) const;
  [[nodiscard]] static local::process_identity process_of(const opening& client);
  [[nodiscard]] static local::process_identity process_of(const session_resources& session);
  result<void> end_unheard_of(const local::process_identity& client, const local::attach_request& request);
  result<void> check_client(const connection& connection, const local::attach_request& request) const;
  result<void> check_limits(const connection& connection, const local::attach_request& request,
                            const config::node_config& now) const;
  [[nodiscard]] share_usage sessions_on(const std::string& device, const share_holder& holder) const;
  [[nodiscard]] std::uint64_t sessions_of(uid_t uid) const;
  result<void> make_resources(opening& from);
  [[nodiscard]] std::uint64_t number_session();
  void prepare(const session_resources& session) const;
  void hand_over_choice();
  result<void> begin(const std::shared_ptr<session_resources>& session, const session_actor& actor, int socket);
  void take_over(const std::shared_ptr<session_resources>& session, const result<session_actor>& opened);
  void set_aside(std::uint64_t number, attached& session, std::string_view why);
  void finish(std::uint64_t number, std::string_view why);
  static void end_pins(const session_resources& session);
  void end_set_aside();
  void end_departed();
  void leave_groups();
  [[nodiscard]] std::string_view reason_to_end(std::uint64_t number, attached& session);
  void release(std::uint64_t number);
  void note_released(std::uint64_t number, const result<outcome>& freed);
  void answer_detached(const asker& client);
  void release_again();
  void drop_entry(std::uint64_t number);

  server_context& context_;
  const current_config& config_;
  std::shared_ptr<local::event_loop> sockets_;
  connection_hooks hooks_;
  gpu_watch gpus_;
  std::unordered_map<std::uint64_t, attached> sessions_;
  opening_map openings_;
  std::map<std::uint64_t, deferred> deferred_;  ///< by ticket
  std::map<tier_number, device_news> devices_;
  std::unordered_map<std::uint64_t, coming_session> coming_;
  std::set<std::uint64_t> coming_suspects_;              ///< of those, the ones that end then
  std::map<std::uint64_t, release_question> releasing_;  ///< by session
  std::uint64_t last_ticket_ = 0, refusals_ = 0;
  std::uint32_t last_session_ = 0;        ///< low half of the number of the session that attached last
  choice_words last_choice_{};            ///< that all sessions have
  std::vector<std::uint64_t> undropped_;  ///< ended sessions that the keeper may still have
  std::optional<error> draining_{};       ///< the answer to an attach while the worker drains
};

}  // namespace cenote
