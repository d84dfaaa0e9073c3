#include "keeper/keeper.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <thread>
#include <utility>

#include "config/logging.hpp"
#include "core/byte_io.hpp"
#include "core/memory_file.hpp"
#include "keeper/notify.hpp"
#include "keeper/runtime_dir.hpp"
#include "transport/local/keeper_link.hpp"

namespace cenote {

namespace {

using namespace std::chrono_literals;
using local::link_message;

constexpr std::string_view deleted_suffix = " (deleted)";
constexpr std::size_t longest_outbox = 64;  ///< answers that wait; with as many no more requests of the worker are read
constexpr auto probe_limit = 15s;           ///< names are looked up, and UCX has 10 s
constexpr auto hand_over_limit = 5s;
constexpr auto closed_link_limit = 1s;
constexpr auto drain_wait = 5s;  ///< for the worker of a keeper that was killed

const auto& log() {
  static const auto instance = logger("keeper");
  return instance;
}

std::vector<int> keeper_signals() {
  return {SIGTERM, SIGINT, SIGHUP, SIGUSR2};
}

sigset_t keeper_mask() {
  sigset_t mask;
  ::sigemptyset(&mask);
  for (const int number : keeper_signals()) ::sigaddset(&mask, number);
  return mask;
}

std::string own_program() {
  std::error_code why;
  auto path = std::filesystem::read_symlink("/proc/self/exe", why).native();
  if (path.ends_with(deleted_suffix)) path.resize(path.size() - deleted_suffix.size());
  return path;
}

// `command` with `program` in place of an empty first word, and with `options` and `arguments` behind it.
std::vector<std::string> complete_command(std::vector<std::string> command, const std::string& program,
                                          std::vector<std::string> options, const std::vector<std::string>& arguments) {
  if (command.front().empty()) command.front() = program;
  command.insert(command.end(), std::make_move_iterator(options.begin()), std::make_move_iterator(options.end()));
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

// A session costs the keeper several descriptors: take all that the machine allows.
void raise_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Who has written himself into the lock file, for a message.
std::string holder_of(int lock) {
  std::array<char, 32> text{};
  const auto got = ::pread(lock, text.data(), text.size() - 1, 0);
  const std::string pid(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  return pid.empty() ? std::string("unknown pid") : "pid " + pid.substr(0, pid.find('\n'));
}

// Earlier versions made the lock file with a mode that let others open it.
bool was_open_to_others(int lock) {
  struct stat info {};
  return ::fstat(lock, &info) == 0 && (info.st_mode & 0077) != 0;
}

bool node_answers(const std::string& socket) {
  return local::connect_to(socket, std::chrono::steady_clock::now() + 1s).has_value();
}

// One line on standard error for whoever started the node; that it cannot be written is ignored.
void print_failure(std::string_view what) {
  const auto line = fmt::format("cenote: {}\n", what);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

bool has_own_file(const keeper_state& state, const std::string& socket) {
  struct stat info {};
  return ::lstat(socket.c_str(), &info) == 0 && info.st_dev == state.socket_device && info.st_ino == state.socket_inode;
}

// The reason for which clients cannot connect; empty: they can.
std::string_view listener_fault(const keeper_state& state, const std::string& socket) {
  pollfd item{state.listener.get(), 0, 0};
  if (::poll(&item, 1, 0) > 0) return "it was shut down";
  return has_own_file(state, socket) ? "" : "its file is gone, or another one";
}

exit_code code_of(const error& why) {
  switch (why.code()) {
    case error_code::limit_exceeded: return exit_code::already_running;
    case error_code::invalid_argument:
    case error_code::invalid_config: return exit_code::usage;
    default: return exit_code::failed;
  }
}

}  // namespace

keeper::keeper(keeper_options options) : options_(std::move(options)), program_(own_program()) {}

exit_code keeper::run() {
  if (auto started = begin(); !started) {
    print_failure(started.error().message());
    return code_of(started.error());
  }
  start_worker();
  while (!done_) wait_and_handle();
  return *done_;
}

// ---- start -------------------------------------------------------------------------------------------------------

result<void> keeper::begin() {
  raise_open_files();
  if (auto done = take_signals(); !done) return done;
  if (options_.resume_fd) resume(*options_.resume_fd);
  if (!state_.lock) {
    state_.node_started = std::chrono::system_clock::now();
    if (auto done = take_lock(); !done) return done;
  }
  if (!state_.listener) {
    if (auto done = listen(clock::now() + drain_wait); !done) return done;
  }
  if (auto done = store_configuration(); !done) return done;
  policy_ = restart_policy(state_.ever_ready);
  log_info(log(), "listening", {{"socket", options_.socket}, {"pid", ::getpid()}});
  return {};
}

void keeper::resume(int fd) {
  auto loaded = load_keeper_state(fd);
  if (!loaded) {
    // Which descriptors are open is not known: closes all but the standard streams and the signalfd, and starts cold.
    const auto keep = static_cast<unsigned>(signals_.get());
    if (keep > 3) ::close_range(3, keep - 1, 0);
    ::close_range(keep + 1, ~0U, 0);
    log_warn(log(), "cannot read what the previous keeper left; starting cold", {{"reason", loaded.error().message()}});
    return;
  }
  ::close(fd);
  state_ = std::move(loaded->state);
  if (loaded->cold) {
    log_warn(log(), "the previous keeper's registry has another version; all of it is dropped, starting cold");
  }
  log_info(log(), "upgraded", {{"entries", state_.entries.size()}, {"epoch", state_.epoch}, {"binary", program_}});
}

result<void> keeper::take_signals() {
  // A log pipe whose reader is gone must not kill the keeper, nor the worker, which inherits this.
  ::signal(SIGPIPE, SIG_IGN);
  const auto mask = keeper_mask();
  if (::sigprocmask(SIG_SETMASK, &mask, nullptr) != 0) return fail_errno("sigprocmask");
  signals_.reset(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) return fail_errno("signalfd");
  return {};
}

result<void> keeper::take_lock() {
  constexpr std::string_view key = "node.runtime_dir";
  if (auto made = make_runtime_dir(options_.runtime_dir); !made) return std::unexpected(made.error().in(key));
  const auto path = lock_file_in(options_.runtime_dir);
  auto fd = open_lock(path);
  if (!fd) return std::unexpected(fail_errno("open", path).error().in(key));
  bool held = ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0;
  if (held && errno == EWOULDBLOCK && was_open_to_others(fd.get()) && !node_answers(options_.socket)) {
    log_warn(log(), "somebody holds the lock file, but no node answers; making a new one", {{"path", path}});
    ::unlink(path.c_str());
    fd = open_lock(path);
    held = !fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0;
  }
  if (held) {
    if (errno != EWOULDBLOCK) return fail_errno("flock", path);
    return fail(error_code::limit_exceeded, fmt::format("a node already runs in {} ({}); stop it, or give this one "
                                                        "another node.runtime_dir",
                                                        options_.runtime_dir, holder_of(fd.get())));
  }
  const auto pid = fmt::format("{}\n", ::getpid());
  if (::fchmod(fd.get(), 0600) != 0) return fail_errno("chmod", path);
  if (::ftruncate(fd.get(), 0) != 0 || ::pwrite(fd.get(), pid.data(), pid.size(), 0) < 0) {
    return fail_errno("write", path);
  }
  state_.lock = std::move(fd);
  return {};
}

result<void> keeper::listen(time_point limit) {
  auto fd = local::listen_at(options_.socket);
  // We hold the lock, so a process that still listens can be the worker of a killed keeper: it drains and exits.
  while (!fd && fd.error().code() == error_code::limit_exceeded && clock::now() < limit) {
    std::this_thread::sleep_for(50ms);
    fd = local::listen_at(options_.socket);
  }
  if (!fd) return std::unexpected(std::move(fd.error()));
  struct stat info {};
  if (::lstat(options_.socket.c_str(), &info) != 0) return fail_errno("stat", options_.socket);
  state_.socket_device = info.st_dev;
  state_.socket_inode = info.st_ino;
  state_.listener = std::move(*fd);
  return {};
}

// Keeps the text of the configuration in the registry, from where each worker reads it: so a worker that is restarted
// after a crash does not read a file that was edited meanwhile.
result<void> keeper::store_configuration() {
  if (state_.entries.entries().contains({local::entry_kind::configuration, 0})) {
    apply_configuration();
    return {};
  }
  if (options_.running.empty()) return {};
  auto file = make_memory_file("cenote-configuration", options_.running);
  if (!file) return std::unexpected(std::move(file.error()));
  local::registry_entry entry{local::entry_kind::configuration, 0, {}, {}};
  entry.fds.push_back(std::move(*file));
  return state_.entries.put(std::move(entry));
}

void keeper::apply_configuration() {
  const auto found = state_.entries.entries().find({local::entry_kind::configuration, 0});
  if (found == state_.entries.entries().end() || found->second.fds.size() != 1 || !options_.on_running) return;
  const auto text = read_memory_file(found->second.fds.front().get());
  if (!text) {
    log_error(log(), "the running configuration cannot be read", {{"reason", text.error().message()}});
    return;
  }
  options_.on_running(options_, *text);
  schedule_heartbeat_check();
}

// ---- the loop ----------------------------------------------------------------------------------------------------

std::optional<keeper::time_point> keeper::next_timer() const {
  std::optional<time_point> next;
  for (const auto& timer : {restart_at_, kill_at_, retry_send_at_, check_heartbeat_at_}) {
    if (timer && (!next || *timer < *next)) next = timer;
  }
  return next;
}

void keeper::wait_and_handle() {
  // poll ignores negative descriptors: a worker that is not there needs no case of its own.
  const bool read_link = outbox_.size() < longest_outbox;
  const bool write_link = wants_to_send() && !retry_send_at_;
  const auto link_events = static_cast<short>((read_link ? POLLIN : 0) | (write_link ? POLLOUT : 0));
  std::array<pollfd, 3> items{pollfd{signals_.get(), POLLIN, 0}, pollfd{worker_ ? worker_->pidfd() : -1, POLLIN, 0},
                              pollfd{link_ ? link_.get() : -1, link_events, 0}};
  timespec limit{};
  const auto timer = next_timer();
  if (timer) {
    const auto left = std::max<std::chrono::nanoseconds>(*timer - clock::now(), 0ns);
    limit.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(left).count();
    limit.tv_nsec = (left % 1s).count();
  }
  if (::ppoll(items.data(), items.size(), timer ? &limit : nullptr, nullptr) < 0 && errno != EINTR) {
    log_error(log(), "poll failed", {{"errno", errno}});
    finish(exit_code::failed);
    return;
  }
  if (items[0].revents != 0) handle_signals();
  if (!done_ && items[2].revents != 0 && link_) receive_from_worker();
  if (!done_ && items[1].revents != 0 && worker_) handle_worker_end();
  if (!done_) handle_timers(clock::now());
  if (!done_ && link_) flush_link();
}

void keeper::handle_timers(time_point now) {
  if (retry_send_at_ && now >= *retry_send_at_) retry_send_at_.reset();
  if (restart_at_ && now >= *restart_at_) start_worker();
  if (check_heartbeat_at_ && now >= *check_heartbeat_at_) check_heartbeat(now);
  if (kill_at_ && now >= *kill_at_) {
    kill_at_.reset();
    killed_late_ = true;
    kill_worker("it did not end in time");
  }
}

void keeper::handle_signals() {
  signalfd_siginfo info{};
  while (!done_ && ::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const auto number = static_cast<int>(info.ssi_signo);
    if (number == SIGTERM || number == SIGINT) stop(number);
    if (number == SIGHUP) reload();
    if (number == SIGUSR2) {
      if (const auto checked = may_upgrade()) {
        begin_upgrade();
      } else {
        log_error(log(), "no upgrade", {{"reason", checked.error().message()}});
      }
    }
  }
}

void keeper::stop(int signal) {
  if (phase_ == phase::stopping) {
    log_warn(log(), "a second signal: ending at once", {{"signal", signal}});
    if (worker_) worker_->signal(SIGKILL);
    finish(exit_code::ended_at_once);
    return;
  }
  phase_ = phase::stopping;
  restart_at_.reset();
  notify_service_manager("STOPPING=1\nSTATUS=draining");
  log_info(log(), "stopping", {{"signal", signal}});
  if (!worker_) {
    finish(exit_code::orderly);
    return;
  }
  worker_->signal(SIGTERM);
  kill_at_ = clock::now() + options_.stop_limit;
}

void keeper::reload() {
  log_info(log(), "reloading");
  reopen_listener();  // the worker asks for it when it reloads
  notify_reloading("reloading");
  reload_asked_ = !worker_ || !worker_ready_;  // the next worker gets the SIGHUP when it is started
  if (worker_) worker_->signal(SIGHUP);
  notify_service_manager("READY=1\nSTATUS=serving");
}

void keeper::finish(exit_code code) {
  done_ = code;
  link_.reset();
  if (has_own_file(state_, options_.socket)) ::unlink(options_.socket.c_str());
  log_info(log(), "ended", {{"exit_code", to_int(code)}});
}

// ---- the worker --------------------------------------------------------------------------------------------------

// Opens the listening socket again if clients cannot reach it: a faulty worker, which shares it, can shut it down for
// all after it, and its file may have been deleted, as by a cleaner of temporary files.
void keeper::reopen_listener() {
  const auto fault = listener_fault(state_, options_.socket);
  if (fault.empty()) return;
  log_error(log(), "opening the listening socket again", {{"socket", options_.socket}, {"reason", fault}});
  if (auto done = listen(clock::now()); !done) {
    log_error(log(), "cannot listen", {{"reason", done.error().message()}});
    return;
  }
  ++listener_number_;
}

void keeper::start_worker() {
  restart_at_.reset();
  worker_ready_ = false;
  killed_late_ = false;
  last_words_.clear();
  policy_.started();
  ++state_.epoch;
  reopen_listener();
  listener_number_ = 0;
  auto ends = local::make_link();
  if (!ends) {
    log_error(log(), "cannot start a worker", {{"reason", ends.error().message()}});
    worker_failed({false, 1}, clock::now());
    return;
  }
  auto& [mine, theirs] = *ends;
  auto started = child_process::start({
      .command = complete_command(options_.worker_command, program_, {"--keeper-fd", std::to_string(theirs.get())},
                                  options_.arguments),
      .program = options_.worker_command.front().empty() ? "/proc/self/exe" : options_.worker_command.front(),
      .inherit = theirs.get(),
      .die_with_parent = true,
      // Blocked over exec, so that no signal is lost before the worker reads them from its signalfd.
      .blocked_signals = keeper_signals(),
  });
  if (!started) {
    log_error(log(), "cannot start a worker", {{"reason", started.error().message()}});
    worker_failed({false, 1}, clock::now());
    return;
  }
  worker_.emplace(std::move(*started));
  worker_started_ = clock::now();
  link_ = std::move(mine);
  handover_ = handover_step::begin;
  last_entry_.reset();
  outbox_.clear();
  retry_send_at_.reset();
  log_info(log(), "worker started",
           {{"pid", worker_->pid()}, {"epoch", state_.epoch}, {"entries", state_.entries.size()}});
  if (reload_asked_) worker_->signal(SIGHUP);  // for each worker until one is ready, as one may die before it reloads
  silence_.restart(worker_started_, local::beat_of(options_.hang_timeout));
  silent_part_.clear();
  check_heartbeat_at_.reset();
  schedule_heartbeat_check();
}

void keeper::handle_worker_end() {
  const auto end = worker_->ended();
  if (!end) return;
  // Its last packets may still be in the queue.
  if (link_) receive_from_worker();
  link_.reset();
  const auto pid = worker_->pid();
  worker_.reset();
  kill_at_.reset();
  check_heartbeat_at_.reset();
  switch (phase_) {
    case phase::stopping:
      log_info(log(), "worker ended", {{"pid", pid}, {"how", end->describe()}});
      finish(killed_late_ || end->by_signal || end->value != 0 ? exit_code::failed : exit_code::orderly);
      return;
    case phase::upgrading:
      log_info(log(), "worker handed over", {{"pid", pid}, {"how", end->describe()}});
      replace_self();
      return;
    case phase::serving:
      log_error(log(), "worker died",
                {{"pid", pid}, {"how", end->describe()}, {"was_ready", worker_ready_}, {"last_words", last_words_}});
      worker_failed(*end, clock::now());
      return;
  }
}

void keeper::worker_failed(const process_end& end, time_point now) {
  ++state_.restarts;
  const auto verdict = policy_.died(end, now);
  // The first worker may find out later: that its name is another node's, for example. There is nothing to lose yet.
  const bool is_new = !policy_.ever_ready() || state_.restarts == 1;
  const bool hopeless = is_new && !end.by_signal && end.value == to_int(exit_code::usage);
  if (hopeless || verdict.give_up) {
    const auto why = last_words_.empty() ? end.describe() : last_words_;
    print_failure(
        hopeless
            ? fmt::format("the worker cannot work with this configuration ({}); see its message above", why)
            : fmt::format("the worker died {} times before it was ready; the last time: {}", policy_.failures(), why));
    finish(hopeless ? exit_code::usage : exit_code::worker_unfit);
    return;
  }
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(verdict.delay).count();
  notify_service_manager(fmt::format("STATUS=worker died ({}); restarting", end.describe()));
  if (verdict.delay == restart_policy::duration::zero()) {
    start_worker();
    return;
  }
  log_warn(log(), "waiting before the next start", {{"delay_ms", ms}, {"failures", policy_.failures()}});
  restart_at_ = now + verdict.delay;
}

void keeper::kill_worker(std::string_view why) {
  log_error(log(), "killing the worker", {{"reason", why}});
  if (worker_) worker_->signal(SIGKILL);
}

// Heartbeat check: a worker that hangs serves no call, so it is killed and replaced like one that crashed.
void keeper::schedule_heartbeat_check() {
  if (options_.hang_timeout == 0ms || !worker_) {
    check_heartbeat_at_.reset();
  } else if (!check_heartbeat_at_) {
    check_heartbeat_at_ = clock::now() + local::beat_of(options_.hang_timeout);
  }
}

void keeper::check_heartbeat(time_point now) {
  check_heartbeat_at_.reset();
  schedule_heartbeat_check();
  if (!check_heartbeat_at_ || phase_ != phase::serving) return;
  const auto silence = silence_.look(now, local::beat_of(options_.hang_timeout));
  const auto limit = worker_ready_ ? options_.hang_timeout : std::max(options_.start_limit, options_.hang_timeout);
  if (silence < limit) return;
  check_heartbeat_at_ = now + limit;  // not earlier: a process that is in a system call may not die at once
  last_words_ =
      fmt::format("silent for {} ms: {}", silence.count(), silent_part_.empty() ? "its main thread" : silent_part_);
  kill_worker(last_words_);
}

void keeper::on_heartbeat(const local::link_packet& packet) {
  byte_reader in(packet.payload);
  const auto silence = std::chrono::milliseconds(in.get<std::uint64_t>());
  const auto who = in.get_text();
  if (!in.ok()) return;
  silence_.heartbeat(clock::now(), worker_ready_ ? silence : 0ms);
  silent_part_ = who;
}

// ---- the link ----------------------------------------------------------------------------------------------------

void keeper::receive_from_worker() {
  while (link_ && outbox_.size() < longest_outbox) {
    auto got = local::try_receive_link(link_.get());
    if (got && !*got) return;
    if (got) {
      handle_packet(std::move(**got));
      continue;
    }
    if (got.error().code() != error_code::closed) {
      // A worker that sends malformed packets is replaced; the registry is as it was.
      kill_worker(got.error().describe());
    } else if (!kill_at_) {
      // Most likely the process is dying, and its pidfd will tell. If it closed its link alone, it is killed.
      kill_at_ = clock::now() + closed_link_limit;
    }
    link_.reset();
  }
}

void keeper::handle_packet(local::link_packet&& packet) {
  const auto& header = packet.header;
  switch (header.message) {
    case link_message::put: {
      const bool configuration = header.kind == local::entry_kind::configuration;
      const auto kept = state_.entries.put({header.kind, header.id, std::move(packet.payload), std::move(packet.fds)});
      answer(header, kept);
      if (configuration && kept) apply_configuration();
      return;
    }
    case link_message::alive: on_heartbeat(packet); return;
    case link_message::drop:
      state_.entries.drop(header.kind, header.id);
      answer(header, {});
      return;
    case link_message::ready:
      worker_ready();
      answer(header, {});
      return;
    case link_message::ask_listener: answer_with_listener(header); return;
    case link_message::ask_upgrade: {
      const auto checked = may_upgrade();
      answer(header, checked);
      // The answer is sent before the signal, so that whoever asked hears that the upgrade begins.
      flush_link();
      if (checked) begin_upgrade();
      return;
    }
    case link_message::fatal: {
      last_words_.assign(reinterpret_cast<const char*>(packet.payload.data()), packet.payload.size());
      return;
    }
    default: answer(header, fail(error_code::malformed, "the keeper does not know this message"));
  }
}

void keeper::worker_ready() {
  if (worker_ready_) return;
  worker_ready_ = true;
  reload_asked_ = false;
  state_.ever_ready = true;
  const auto now = clock::now();
  silence_.heartbeat(now, 0ms);
  policy_.ready(now);
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(now - worker_started_).count();
  log_info(log(), "worker is ready", {{"pid", worker_ ? worker_->pid() : 0}, {"took_ms", took}});
  notify_service_manager(fmt::format("READY=1\nMAINPID={}\nSTATUS=serving at {}", ::getpid(), options_.socket));
}

void keeper::answer(const local::link_header& to, const result<void>& outcome) {
  outgoing reply;
  reply.header.message = outcome ? link_message::ack : link_message::refused;
  reply.header.sequence = to.sequence;
  if (!outcome) {
    reply.payload = local::encode_failure(outcome.error());
    log_warn(log(), "refused the worker's request", {{"reason", outcome.error().message()}});
  }
  outbox_.push_back(std::move(reply));
}

void keeper::answer_with_listener(const local::link_header& request) {
  if (phase_ == phase::serving) reopen_listener();
  outgoing reply;
  reply.header.message = link_message::ack;
  reply.header.sequence = request.sequence;
  reply.header.id = listener_number_;
  if (request.id != listener_number_) {
    unique_fd copy(::fcntl(state_.listener.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy) return answer(request, fail_errno("dup"));
    reply.fds.push_back(std::move(copy));
  }
  outbox_.push_back(std::move(reply));
}

bool keeper::wants_to_send() const noexcept {
  return link_ && (handover_ != handover_step::done || !outbox_.empty());
}

// One packet of the handover; false when the queue is full.
result<bool> keeper::send_handover() {
  local::link_header header;
  if (handover_ == handover_step::begin) {
    header.message = link_message::handover;
    byte_writer out;
    out.put(state_.epoch);
    out.put(std::chrono::duration_cast<std::chrono::nanoseconds>(state_.node_started.time_since_epoch()).count());
    out.put(state_.restarts);
    out.put(static_cast<std::uint32_t>(state_.entries.size()));
    const std::array listener{state_.listener.get()};
    auto sent = local::try_send_link(link_.get(), header, out.bytes(), listener);
    if (sent && *sent) handover_ = handover_step::entries;
    return sent;
  }
  const auto& entries = state_.entries.entries();
  const auto next = last_entry_ ? entries.upper_bound(*last_entry_) : entries.begin();
  if (next == entries.end()) {
    header.message = link_message::handover_end;
    auto sent = local::try_send_link(link_.get(), header, {}, {});
    if (sent && *sent) handover_ = handover_step::done;
    return sent;
  }
  const auto& entry = next->second;
  header.message = link_message::entry;
  header.kind = entry.kind;
  header.id = entry.id;
  auto sent = local::try_send_link(link_.get(), header, entry.meta, local::numbers_of(entry.fds));
  if (sent && *sent) last_entry_ = next->first;
  return sent;
}

void keeper::flush_link() {
  while (wants_to_send() && !retry_send_at_) {
    const bool handing_over = handover_ != handover_step::done;
    const auto sent = handing_over ? send_handover()
                                   : local::try_send_link(link_.get(), outbox_.front().header, outbox_.front().payload,
                                                          local::numbers_of(outbox_.front().fds));
    if (!sent && sent.error().code() == error_code::limit_exceeded) {
      // Too many descriptors in flight: the worker has to take some first, and no event tells when.
      retry_send_at_ = clock::now() + 1ms;
      return;
    }
    if (!sent) {
      // A dead worker is noticed by its pidfd.
      if (sent.error().code() != error_code::closed) kill_worker(sent.error().describe());
      outbox_.clear();
      handover_ = handover_step::done;
      return;
    }
    if (!*sent) return;
    if (!handing_over) outbox_.pop_front();
  }
}

// ---- upgrade -----------------------------------------------------------------------------------------------------

// Checked before anything is stopped: the new binary must run, and must accept this node's configuration.
result<void> keeper::may_upgrade() const {
  if (phase_ != phase::serving) return fail(error_code::invalid_argument, "upgrade: the node is stopping already");
  const auto& program = options_.node_command.front().empty() ? program_ : options_.node_command.front();
  if (::access(program.c_str(), X_OK) != 0) return fail_errno("upgrade", program);
  auto probe = child_process::start(
      {.command = complete_command(options_.probe_command, program, {}, options_.arguments), .discard_output = true});
  if (!probe) return std::unexpected(std::move(probe.error()));
  if (!local::detail::wait_for(probe->pidfd(), POLLIN, clock::now() + probe_limit)) {
    return fail(error_code::deadline_exceeded,
                fmt::format("upgrade: {} does not answer; the node stays as it is", program));
  }
  const auto end = probe->ended();
  if (!end || end->by_signal || end->value != 0) {
    return fail(error_code::unsupported,
                fmt::format("upgrade: {} does not run with this node's configuration ({}): the node's log has the "
                            "reason, as has `cenote config check`; the node stays as it is",
                            program, end ? end->describe() : "unknown"));
  }
  return {};
}

void keeper::begin_upgrade() {
  log_info(log(), "upgrading");
  notify_reloading("upgrading");
  phase_ = phase::upgrading;
  restart_at_.reset();
  if (!worker_) {
    replace_self();
    return;
  }
  worker_->signal(SIGUSR2);
  kill_at_ = clock::now() + hand_over_limit;
}

void keeper::replace_self() {
  auto saved = save_keeper_state(state_);
  std::string why;
  if (saved) {
    const auto command = complete_command(options_.node_command, program_, {"--resume", std::to_string(saved->get())},
                                          options_.arguments);
    std::vector<char*> words;
    words.reserve(command.size() + 1);
    for (const auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    keep_across_exec(state_, true);
    ::fcntl(saved->get(), F_SETFD, 0);
    ::execv(words[0], words.data());
    why = fail_errno("execv", command.front()).error().message();
    keep_across_exec(state_, false);
  } else {
    why = saved.error().message();
  }
  log_error(log(), "the upgrade failed; going on with the old binary", {{"reason", why}});
  phase_ = phase::serving;
  start_worker();
}

}  // namespace cenote
