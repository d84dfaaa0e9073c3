#include "transport/ucx/network.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/socket_address.hpp"
#include "core/unique_fd.hpp"
#include "transport/ucx/connection_proof.hpp"
#include "transport/ucx/handles.hpp"
#include "transport/ucx/links.hpp"
#include "transport/ucx/listening_socket.hpp"

namespace cenote::ucx {

namespace {

constexpr std::size_t commands_a_round = 64;
constexpr std::chrono::seconds closing_limit{2};        // for UCX to let go of all connections when the network stops
constexpr std::chrono::milliseconds quiet_limit{500};   // … of those that nobody has named when its listeners end
constexpr std::chrono::milliseconds saying_limit{200};  // … for what was said before that to be sent
constexpr std::size_t most_lookups = 8;                 // of names, at a time
// While blocks flow, the thread looks again after a nap instead of being woken for each arrival, as network cards
// moderate their interrupts: to wake it costs the other side's thread, or the kernel's, more than the nap does.
constexpr std::chrono::microseconds nap{40};
constexpr std::chrono::microseconds flow_limit{100};  // without anything of blocks: they do not flow

using command = std::function<void(links&)>;

/// What other threads ask of the network's thread. Outlives the network for those that look up names.
class mailbox {
 public:
  explicit mailbox(unique_fd bell) : bell_(std::move(bell)) {}

  void post(command what) {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return;
    waiting_.push_back(std::move(what));
    if (is_sleeping_) ring();
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    ring();
  }
  void close() {
    std::deque<command> dropped;  // ends without the lock: what a command holds may post at its own end
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    dropped.swap(waiting_);
  }
  [[nodiscard]] bool is_stopping() {
    const std::lock_guard lock(mutex_);
    return is_stopping_;
  }
  [[nodiscard]] std::vector<command> take() {
    const std::lock_guard lock(mutex_);
    const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(std::min(waiting_.size(), commands_a_round));
    std::vector<command> taken(std::move_iterator(waiting_.begin()), std::move_iterator(end));
    waiting_.erase(waiting_.begin(), end);
    return taken;
  }
  /// True: nothing waits, and whoever posts something rings from now on.
  [[nodiscard]] bool may_sleep() {
    const std::lock_guard lock(mutex_);
    is_sleeping_ = waiting_.empty() && !is_stopping_;
    return is_sleeping_;
  }
  void wake_up() {
    const std::lock_guard lock(mutex_);
    is_sleeping_ = false;
    std::uint64_t rung = 0;
    (void)!::read(bell_.get(), &rung, sizeof rung);
  }
  [[nodiscard]] int bell() const noexcept { return bell_.get(); }

  std::atomic<std::size_t> lookups{0};  ///< of names that are under way

 private:
  void ring() const {
    const std::uint64_t one = 1;
    (void)!::write(bell_.get(), &one, sizeof one);
  }

  unique_fd bell_;
  std::mutex mutex_;
  std::deque<command> waiting_;
  bool is_sleeping_ = false;
  bool is_stopping_ = false;
  bool is_closed_ = false;
};

/// Calls `then` on the network's thread with the addresses; a name is looked up on a thread of its own, which may wait
/// for minutes and is waited for by nobody.
void with_addresses(const std::shared_ptr<mailbox>& box, const endpoint& place,
                    const std::function<void(links&, const result<socket_addresses>&)>& then) {
  const auto answer = [box, then, host = place.host](const result<socket_addresses>& addresses) {
    auto usable = addresses ? node_addresses_among(host, *addresses) : addresses;
    box->post([then, usable = std::move(usable)](links& all) { then(all, usable); });
  };
  if (const auto number = numeric_address(place)) return answer(socket_addresses{*number});
  const auto end_lookup = [box, answer](const result<socket_addresses>& addresses) {
    box->lookups.fetch_sub(1);
    answer(addresses);
  };
  if (box->lookups.fetch_add(1) >= most_lookups) {
    end_lookup(
        fail(error_code::limit_exceeded, "the name service does not answer; " + place.host + " was not looked up"));
  } else if (const auto begun = look_up_later(place, look_up, end_lookup); !begun) {
    end_lookup(std::unexpected(begun.error()));
  }
}

/// The same with the first address.
void with_address(const std::shared_ptr<mailbox>& box, const endpoint& place,
                  const std::function<void(links&, const result<socket_address>&)>& then) {
  with_addresses(box, place, [then](links& all, const result<socket_addresses>& addresses) {
    then(all, addresses ? result<socket_address>(addresses->front()) : std::unexpected(addresses.error()));
  });
}

/// As numbers.
result<std::vector<endpoint>> endpoints_of(const result<socket_addresses>& addresses) {
  if (!addresses) return std::unexpected(addresses.error());
  std::vector<endpoint> all;
  for (const socket_address& each : *addresses) all.push_back(each.where());
  return all;
}

/// A worker of UCX, and what belongs to it.
struct side {
  context_handle context;
  worker_handle worker;
  listener_handle listener;
  int events = -1;  ///< readable when an armed worker has something to do
  endpoint where;   ///< it listens
  endpoint number;  ///< the same, without a name
};

/// The UCX objects of a network: for frames and for blocks.
struct machinery {
  std::shared_ptr<const library> from;
  side control;
  side blocks;
};

result<context_handle> make_context(const std::shared_ptr<const library>& from, const environment& changes) {
  ucp_config_t* settings = nullptr;
  if (const auto status = from->ucp_config_read(nullptr, nullptr, &settings); status != UCS_OK)
    return std::unexpected(error_of(*from, "ucp_config_read", status));
  for (const auto& [name, value] : changes) {
    const auto status = from->ucp_config_modify(settings, name.c_str(), value.c_str());
    if (status == UCS_OK) continue;
    from->ucp_config_release(settings);
    return std::unexpected(error_of(*from, "ucp_config_modify", status).in(name));
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "cenote";
  ucp_context_h made = nullptr;
  const auto status = from->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, settings, &made);
  from->ucp_config_release(settings);
  if (status != UCS_OK) return std::unexpected(error_of(*from, "ucp_init", status));
  return context_handle(from, made);
}

result<side> make_side(const std::shared_ptr<const library>& from, const environment& changes) {
  side made;
  auto context = make_context(from, changes);
  if (!context) return std::unexpected(context.error());
  made.context = std::move(*context);
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucp_worker_h worker = nullptr;
  if (const auto status = from->ucp_worker_create(made.context.get(), &params, &worker); status != UCS_OK)
    return std::unexpected(error_of(*from, "ucp_worker_create", status));
  made.worker = worker_handle(from, worker);
  if (const auto status = from->ucp_worker_get_efd(worker, &made.events); status != UCS_OK)
    return std::unexpected(error_of(*from, "ucp_worker_get_efd", status));
  return made;
}

/// Has `of` listen, and finds out where.
result<void> listen(const std::shared_ptr<const library>& from, side& of, const endpoint& where,
                    ucp_listener_conn_callback_t on_request, links* argument) {
  const auto address = node_address(where);
  if (!address) return std::unexpected(address.error());
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = {address->get(), address->size};
  params.conn_handler = {on_request, argument};
  ucp_listener_h made = nullptr;
  if (const auto status = from->ucp_listener_create(of.worker.get(), &params, &made); status != UCS_OK)
    return std::unexpected(error_of(*from, "ucp_listener_create", status).in("listening at " + where.text()));
  of.listener = listener_handle(from, made);
  ucp_listener_attr_t found{};
  found.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  if (const auto status = from->ucp_listener_query(made, &found); status != UCS_OK)
    return std::unexpected(error_of(*from, "ucp_listener_query", status));
  of.number = socket_address::of(found.sockaddr).where();
  of.where = {where.host, of.number.port};
  return {};
}

/// At any port of the range that is free.
result<void> listen_for_blocks(const std::shared_ptr<const library>& from, side& of, const std::string& host,
                               const port_range& ports, links* argument) {
  result<void> listens;
  std::uint32_t port = ports.first;
  do {
    listens = listen(from, of, {host, static_cast<std::uint16_t>(port)}, &links::block_request_came, argument);
  } while (!listens && ++port <= ports.last);
  if (!listens) return std::unexpected(listens.error().in("the port for blocks"));
  return {};
}

class ucx_network final : public network {
 public:
  static result<std::unique_ptr<network>> start(const network_options& options, peer::network_events events) {
    unique_fd bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!bell) return fail_errno("eventfd");
    std::unique_ptr<ucx_network> made(new ucx_network(std::move(bell), std::move(events)));
    if (auto prepared = made->prepare(options); !prepared) return std::unexpected(prepared.error());
    made->thread_ = std::thread([self = made.get()] { self->serve(); });
    return made;
  }
  ucx_network(const ucx_network&) = delete;
  ucx_network& operator=(const ucx_network&) = delete;
  ~ucx_network() override { stop(); }

  endpoint where() const override { return machinery_.control.where; }
  endpoint blocks_at() const override { return machinery_.blocks.where; }
  peer::oddities odd() const noexcept override {
    return {strange_messages_.load(), refused_links_.load(), connections_without_proof(), unended_closes_.load()};
  }

  void look_up(const endpoint& name) override {
    with_addresses(mailbox_, name, [this, name](links&, const auto& addresses) {
      if (events_.addresses) events_.addresses(name, endpoints_of(addresses));
    });
  }
  peer::link_id dial(const endpoint& other) override {
    const peer::link_id which = next_++;
    with_address(mailbox_, other, [which, other](links& all, const auto& where) { all.dial(which, other, where); });
    return which;
  }
  void send(peer::link_id to, std::vector<std::byte> frame) override {
    mailbox_->post([to, frame = std::move(frame)](links& all) mutable { all.send(to, std::move(frame)); });
  }
  void join_blocks(peer::link_id which, const endpoint& other, const peer::ticket& proof) override {
    with_address(mailbox_, other,
                 [which, proof](links& all, const auto& where) { all.join_blocks(which, where, proof); });
  }
  void await_blocks(peer::link_id which, const peer::ticket& proof) override {
    mailbox_->post([which, proof](links& all) { all.await_blocks(which, proof); });
  }
  void send_block(peer::link_id to, const peer::piece_header& head, std::span<const std::byte> memory) override {
    mailbox_->post([to, head, memory](links& all) { all.send_block(to, head, memory); });
  }
  void close(peer::link_id which, error why) override {
    mailbox_->post([which, why = std::move(why)](links& all) { all.close(which, why); });
  }
  void run(std::function<void()> what) override {
    mailbox_->post([what = std::move(what)](links&) { what(); });
  }
  void stop() noexcept override {
    mailbox_->stop();
    if (thread_.joinable()) thread_.join();
  }

 private:
  ucx_network(unique_fd bell, peer::network_events events)
      : mailbox_(std::make_shared<mailbox>(std::move(bell))), events_(std::move(events)) {}

  result<void> prepare(const network_options& options) {
    auto loaded = load_library(options.variables);
    if (!loaded) return std::unexpected(loaded.error());
    use_connection_secret(options.shared);
    machinery& of = machinery_;
    of.from = std::move(*loaded);
    // Whoever connects makes UCX hold a segment before anybody knows who it is: small ones where there are many links.
    auto control = make_side(of.from, {{"TX_SEG_SIZE", "16k"}, {"RX_SEG_SIZE", "64k"}});
    if (!control) return std::unexpected(control.error());
    of.control = std::move(*control);
    auto blocks = make_side(of.from, {});
    if (!blocks) return std::unexpected(blocks.error());
    of.blocks = std::move(*blocks);
    links_ = std::make_unique<links>(of.from, of.control.worker.get(), of.blocks.worker.get(), events_,
                                     [this] { return next_++; });
    if (auto listens = listen(of.from, of.control, options.listen, &links::request_came, links_.get()); !listens)
      return listens;
    return listen_for_blocks(of.from, of.blocks, options.listen.host, options.ports, links_.get());
  }

  void serve() {
    ::pthread_setname_np(::pthread_self(), "cenote-net");
    ::prctl(PR_SET_TIMERSLACK, 1000);  // ns; or a nap lasts twice as long
    while (!mailbox_->is_stopping()) {
      if (turn()) continue;
      if (links::clock::now() - last_of_blocks_ < flow_limit) {
        std::this_thread::sleep_for(nap);
      } else {
        sleep();
      }
    }
    end_sayings();
    links_->close_all(error(error_code::closed, "this node stops"));
    const auto until = links::clock::now() + closing_limit;
    while (!links_->is_empty() && links::clock::now() < until) {
      if (!progress()) std::this_thread::yield();
      refuse_requests();
    }
    mailbox_->close();
    (void)run_actors();
    end_listening();
    links_.reset();
    machinery_.control.context = {};
    machinery_.blocks.context = {};
  }

  void refuse_requests() {
    links_->refuse_requests(machinery_.control.listener.get(), machinery_.blocks.listener.get());
  }

  /// See listening_socket. What that could not end in time ends with the worker, right behind its listener.
  void end_listening() {
    std::vector<listening_socket> sockets;
    for (const side* const each : {&machinery_.control, &machinery_.blocks}) {
      if (auto found = listening_socket::find(each->number)) sockets.push_back(std::move(*found));
    }
    for (listening_socket& each : sockets) each.refuse();
    const auto until = links::clock::now() + quiet_limit;
    while (std::ranges::any_of(sockets, &listening_socket::is_in_use) && links::clock::now() < until) {
      for (const listening_socket& each : sockets) each.hang_up();
      if (!progress()) std::this_thread::yield();
      refuse_requests();
    }
    refuse_requests();
    for (side* const each : {&machinery_.control, &machinery_.blocks}) {
      each->listener = {};
      each->worker = {};
    }
  }

  /// What was said before the stop is heard, a farewell above all.
  void end_sayings() {
    const auto until = links::clock::now() + saying_limit;
    while ((turn() || links_->is_saying()) && links::clock::now() < until) std::this_thread::yield();
  }

  /// True: something has moved.
  bool turn() {
    const auto commands = mailbox_->take();
    for (const command& each : commands) each(*links_);
    const bool has_moved = progress();
    return run_actors() || has_moved || !commands.empty();
  }

  /// Once each: a loop here would let the queue wait for as long as others send.
  bool progress() {
    const unsigned of_frames = machinery_.from->ucp_worker_progress(machinery_.control.worker.get());
    const unsigned of_blocks = machinery_.from->ucp_worker_progress(machinery_.blocks.worker.get());
    if (of_blocks != 0) last_of_blocks_ = links::clock::now();
    const bool has_tended = links_->tend();
    strange_messages_.store(links_->odd().strange_messages, std::memory_order_relaxed);
    refused_links_.store(links_->odd().refused_links, std::memory_order_relaxed);
    unended_closes_.store(links_->odd().unended_closes, std::memory_order_relaxed);
    return has_tended || of_frames != 0 || of_blocks != 0;
  }

  bool run_actors() { return events_.after_round && events_.after_round(); }

  void sleep() {
    const library& ucx = *machinery_.from;
    // UCX tells of what comes from now on, or that something came already.
    const bool is_quiet = ucx.ucp_worker_arm(machinery_.control.worker.get()) == UCS_OK &&
                          ucx.ucp_worker_arm(machinery_.blocks.worker.get()) == UCS_OK && mailbox_->may_sleep();
    if (is_quiet) {
      std::array<pollfd, 3> waits{pollfd{machinery_.control.events, POLLIN, 0},
                                  pollfd{machinery_.blocks.events, POLLIN, 0}, pollfd{mailbox_->bell(), POLLIN, 0}};
      (void)::poll(waits.data(), waits.size(), until_next());
    }
    mailbox_->wake_up();
  }

  /// For poll().
  [[nodiscard]] int until_next() const {
    const auto next = links_->wake_at();
    if (!next) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - links::clock::now());
    return static_cast<int>(std::max<std::int64_t>(0, left.count()));
  }

  std::shared_ptr<mailbox> mailbox_;
  peer::network_events events_;
  machinery machinery_;
  std::unique_ptr<links> links_;
  std::atomic<peer::link_id> next_{1};
  std::atomic<std::uint64_t> strange_messages_{0};
  std::atomic<std::uint64_t> refused_links_{0};
  std::atomic<std::uint64_t> unended_closes_{0};
  links::clock::time_point last_of_blocks_{};  ///< when something moved on connections for blocks
  std::thread thread_;
};

constexpr std::chrono::seconds check_limit{10};

/// The message of what is wrong; empty: nothing.
std::string fault_of(const environment& variables) {
  const auto loaded = load_library(variables);
  if (!loaded) return loaded.error().message();
  const auto begun = make_side(*loaded, {});
  return begun ? "" : begun.error().message();
}

/// Writes the fault to the pipe and ends the process, without what UCX would do at its end.
[[noreturn]] void report_fault(int pipe, const environment& variables) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string fault = fault_of(variables);
  const bool is_written = ::write(pipe, fault.data(), fault.size()) == static_cast<ssize_t>(fault.size());
  ::_exit(is_written && fault.empty() ? EXIT_SUCCESS : EXIT_FAILURE);
}

/// Of a child, until it ends; nothing: it takes too long.
std::optional<std::string> text_from(int pipe, std::chrono::steady_clock::time_point end) {
  std::string text;
  std::array<char, 512> part{};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    pollfd item{pipe, POLLIN, 0};
    const int ready = left.count() <= 0 ? 0 : ::poll(&item, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    const ssize_t size = ::read(pipe, part.data(), part.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(size));
  }
}

}  // namespace

result<void> check_ucx(const environment& variables) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno("pipe");
  const unique_fd output(ends[0]);
  unique_fd input(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return fail_errno("fork");
  if (child == 0) report_fault(input.get(), variables);
  input.reset();
  const auto fault = text_from(output.get(), std::chrono::steady_clock::now() + check_limit);
  if (!fault) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!fault) return fail(error_code::system, "UCX does not answer");
  if (!fault->empty()) return fail(error_code::unsupported, *fault);
  if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS) return {};
  return fail(error_code::system, "UCX ended the process that tried it");
}

result<std::unique_ptr<network>> start_network(const network_options& options, peer::network_events events) {
  return ucx_network::start(options, std::move(events));
}

}  // namespace cenote::ucx
