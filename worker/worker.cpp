#include "worker/worker.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>

#include "actors/coarse_clock.hpp"
#include "actors/data_path.hpp"
#include "actors/dram_tier.hpp"
#include "actors/node.hpp"
#include "actors/nvme_tier.hpp"
#include "actors/prefetch.hpp"
#include "actors/pulse.hpp"
#include "actors/tier_options.hpp"
#include "config/logging.hpp"
#include "config/node_config.hpp"
#include "core/memory_file.hpp"
#include "tiers/nvme/pending_removals.hpp"
#include "transport/http/server.hpp"
#include "worker/kill_at.hpp"
#include "worker/server.hpp"

namespace cenote {

namespace {

constexpr int exit_failed = 1;
constexpr int exit_config = 2;
constexpr auto patience_with_paths = std::chrono::seconds(15);

class worker_system_config : public caf::actor_system_config {
 public:
  explicit worker_system_config(unsigned threads) {
    add_message_types<caf::id_block::cenote>();
    set("scheduler.policy", caf::atom("sharing"));  // stealing workers sleep in 50 us steps that no message interrupts
    set("scheduler.max-threads", std::max(2U, threads));
    set("scheduler.max-throughput", 300U);
    set("logger.verbosity", caf::atom("quiet"));
  }
};

nvme::device_options device_options_of(const config::node_config& config) {
  nvme::device_options options;
  options.directories = config.nvme.paths;
  options.capacity = config.nvme.capacity;
  options.holder = config::socket_path(config);
  options.queue_depth = config.nvme.queue_depth;
  options.require_mount = config.nvme.require_mount;
  switch (config.nvme.engine) {
    case config::io_engine::automatic: options.engine = nvme::engine_kind::automatic; break;
    case config::io_engine::io_uring: options.engine = nvme::engine_kind::io_uring; break;
    case config::io_engine::threads: options.engine = nvme::engine_kind::threads; break;
  }
  return options;
}

std::uint64_t slab_id(const dram::slab_description& slab) {
  return (std::uint64_t{slab.instance} << 32) | slab.index;
}

/// What the keeper held, made into state again.
struct recovered_state {
  std::shared_ptr<dram::store> store;
  std::vector<std::shared_ptr<session_resources>> sessions;
  dram::instance_number next_instance = 1;
  std::uint64_t blocks = 0;
};

class recovery {
 public:
  recovery(const config::node_config& config, local::keeper_link& keeper) : config_(config), keeper_(keeper) {}

  result<recovered_state> run(std::vector<local::registry_entry> entries) {
    if (auto made = make_store(entries); !made) return std::unexpected(made.error());
    for (local::registry_entry& entry : entries) {
      const local::entry_kind kind = entry.kind;
      const std::uint64_t id = entry.id;
      if (auto taken = take(std::move(entry)); !taken) {
        log_warn(logger("recovery"), "not taken over",
                 {{"kind", static_cast<int>(kind)}, {"id", id}, {"reason", taken.error().describe()}});
        // Its pins may hold blocks that others would be given: without them there is no safe start.
        const bool unknown_pins = kind == local::entry_kind::session && taken.error().code() == error_code::system;
        if (unknown_pins) return std::unexpected(taken.error().in("session " + std::to_string(id)));
        (void)keeper_.drop(kind, id);
      }
    }
    state_.next_instance = std::max(state_.next_instance, state_.store->next_instance());
    state_.blocks = state_.store->rebuild(coarse_now());
    return std::move(state_);
  }

 private:
  result<void> make_store(std::vector<local::registry_entry>& entries) {
    const auto records = std::find_if(entries.begin(), entries.end(),
                                      [](const auto& entry) { return entry.kind == local::entry_kind::records; });
    if (records != entries.end() && records->fds.size() == 1) {
      auto table = memory::record_table::open(std::move(records->fds[0]));
      if (table) {
        state_.store = std::make_shared<dram::store>(store_options_of(config_), std::move(*table));
        entries.erase(records);
        return {};
      }
      log_warn(logger("recovery"), "starting cold: the blocks of the last worker have another layout",
               {{"reason", table.error().describe()}});
    }
    retire(entries);
    auto table = memory::record_table::create();
    if (!table) return std::unexpected(table.error());
    const std::array fds{table->memory().fd().get()};
    if (auto kept = keeper_.put(local::entry_kind::records, 0, {}, fds); !kept) return kept;
    state_.store = std::make_shared<dram::store>(store_options_of(config_), std::move(*table));
    return {};
  }

  /// Cold start: tells every old client first, then lets go of the old memory. It is never emptied: nobody knows any
  /// more which blocks are pinned, and a reader would take zeros for a hit. It is gone when the last client unmaps it.
  void retire(std::vector<local::registry_entry>& entries) {
    for (const local::registry_entry& entry : entries) {
      if (entry.kind == local::entry_kind::session && !entry.fds.empty()) retire_session(entry);
    }
    for (const local::registry_entry& entry : entries) (void)keeper_.drop(entry.kind, entry.id);
    entries.clear();
  }

  static void mark_retired(memory::segment_header& of) {
    memory::shared_store(of.retired, 1, std::memory_order_release, "worker.session_retired"_point);
  }

  static void retire_session(const local::registry_entry& entry) {
    const off_t bytes = ::lseek(entry.fds[0].get(), 0, SEEK_END);
    if (bytes < static_cast<off_t>(memory::page_bytes)) return;
    auto copy = entry.fds[0].duplicate();
    if (!copy) return;
    auto segment =
        memory::segment::map(std::move(*copy), static_cast<std::uint64_t>(bytes), memory::access::read_write);
    if (segment) mark_retired(*reinterpret_cast<memory::segment_header*>(segment->data()));
  }

  result<void> take(local::registry_entry entry) {
    switch (entry.kind) {
      case local::entry_kind::instance: return take_instance(std::move(entry));
      case local::entry_kind::slab: return take_slab(std::move(entry));
      case local::entry_kind::session: return take_session(std::move(entry));
      default: return fail(error_code::layout_mismatch, "unknown kind");
    }
  }

  result<void> take_instance(local::registry_entry entry) {
    byte_reader meta(entry.meta);
    auto spec = decode_instance_spec(meta);
    if (!spec) return std::unexpected(spec.error());
    if (entry.fds.size() != 2) return fail(error_code::layout_mismatch, "an instance without its segments");
    const auto number = static_cast<dram::instance_number>(entry.id);
    state_.next_instance = std::max(state_.next_instance, number + 1);
    auto index = memory::shared_file::adopt(std::move(entry.fds[0]), memory::index_segment_bytes);
    if (!index) return std::unexpected(index.error());
    auto file = memory::shared_file::adopt(std::move(entry.fds[1]), memory::version_table::segment_bytes);
    if (!file) return std::unexpected(file.error());
    auto versions = memory::version_table::open(std::move(*file), memory::access::read_write);
    if (!versions) return std::unexpected(versions.error());
    if (versions->is_retired()) {
      return fail(error_code::closed, "an instance that was being given up");
    }
    // Earlier versions did not keep who made an instance.
    const std::uint32_t owner = meta.remaining() >= sizeof(std::uint32_t) ? meta.get<std::uint32_t>() : ::geteuid();
    return state_.store->recover_instance(number, *spec, std::move(*index), std::move(*versions), owner);
  }

  result<void> take_slab(local::registry_entry entry) {
    auto slab = dram::decode_slab(entry.meta);
    if (!slab) return std::unexpected(slab.error());
    if (entry.fds.size() != 1) return fail(error_code::layout_mismatch, "a slab without its memory");
    auto memory = dram::open_slab_memory(std::move(entry.fds[0]), slab->segment_bytes);
    if (!memory) return std::unexpected(memory.error());
    return state_.store->recover_slab(slab->slab, std::move(*memory));
  }

  result<void> take_session(local::registry_entry entry) {
    auto session = recover_session(std::move(entry));
    if (!session) return std::unexpected(session.error());
    pollfd death{(*session)->pidfd.get(), POLLIN, 0};
    if (::poll(&death, 1, 0) > 0) return fail(error_code::closed, "its process died meanwhile");
    auto taken =
        state_.store->recover_session((*session)->number, (*session)->instance, (*session)->view, (*session)->uid);
    if (taken) {
      state_.sessions.push_back(std::move(*session));
    } else {  // it would read on in memory that nobody keeps for it
      mark_retired((*session)->view.header().segment);
    }
    return taken;
  }

  const config::node_config& config_;
  local::keeper_link& keeper_;
  recovered_state state_;
};

/// Memory for what a path has not written down of its removals: the one that the last worker had, or a new one.
result<memory::segment> removal_memory(const std::string& directory, local::keeper_link& keeper,
                                       std::vector<local::registry_entry>& entries) {
  const std::uint64_t id = nvme::path_identity(directory);
  const auto held = std::ranges::find_if(
      entries, [&](const auto& each) { return each.kind == local::entry_kind::removals && each.id == id; });
  if (held != entries.end() && held->fds.size() == 1) {
    auto memory =
        memory::segment::map(std::move(held->fds[0]), nvme::pending_removals::kept_bytes, memory::access::read_write);
    if (memory) return memory;
  }
  auto made = memory::segment::create("removals", nvme::pending_removals::kept_bytes);
  if (!made) return made;
  const std::array fds{made->fd().get()};
  const auto name = std::as_bytes(std::span(directory));
  if (auto kept = keeper.put(local::entry_kind::removals, id, name, fds); !kept) return std::unexpected(kept.error());
  return made;
}

std::vector<memory::segment> take_removals(const config::node_config& config, local::keeper_link& keeper,
                                           std::vector<local::registry_entry>& entries) {
  std::vector<memory::segment> all;
  for (const std::string& directory : config.nvme.paths) {
    auto memory = removal_memory(directory, keeper, entries);
    if (!memory) {
      log_warn(logger("nvme"), "removals that cannot be written down will not outlive this worker",
               {{"path", directory}, {"reason", memory.error().describe()}});
    }
    all.push_back(memory ? std::move(*memory) : memory::segment());
  }
  return all;
}

/// Memory for slabs that an earlier worker touched; nobody has seen it.
std::vector<dram::reserve::piece> take_reserve(std::vector<local::registry_entry>& entries) {
  std::vector<dram::reserve::piece> held;
  for (local::registry_entry& each : entries) {
    if (each.kind != local::entry_kind::reserve || each.fds.size() != 1) continue;
    if (auto memory = dram::adopt_spare_memory(std::move(each.fds[0]))) held.push_back({each.id, std::move(*memory)});
  }
  std::erase_if(entries, [](const auto& each) { return each.kind == local::entry_kind::reserve; });
  return held;
}

void log_populated(const dram::populate_report& what) {
  using phase = dram::populate_status::phase;
  const auto log = logger("dram");
  const std::uint64_t bytes = what.status.bytes;
  const std::uint64_t total = what.status.total;
  const auto took_ms = std::chrono::duration_cast<std::chrono::milliseconds>(what.took).count();
  switch (what.status.at) {
    case phase::going_on: log_info(log, "populating memory", {{"populated", bytes}, {"of", total}}); break;
    case phase::done: log_info(log, "memory is populated", {{"populated", bytes}, {"took_ms", took_ms}}); break;
    default:
      log_warn(log, "memory is not populated further: lower dram.capacity, or give the node more memory",
               {{"reason", what.reason}, {"populated", bytes}, {"of", total}});
  }
}

/// Ends the process when an orderly end takes too long.
class watchdog {
 public:
  explicit watchdog(std::chrono::nanoseconds limit) : thread_([this, limit] { wait(limit); }) {}
  watchdog(const watchdog&) = delete;
  watchdog& operator=(const watchdog&) = delete;
  ~watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

 private:
  void wait(std::chrono::nanoseconds limit) {
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, limit, [this] { return done_; })) return;
    log_error(logger("worker"), "the drain took too long, ending at once");
    ::_exit(exit_failed);
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

/// Collects what became of opening the paths of the NVMe tier.
class path_gate {
 public:
  explicit path_gate(std::size_t paths) : open_(paths) {}

  void opened(const result<void>& status) {
    {
      const std::lock_guard lock(mutex_);
      --open_;
      if (!status && status_) status_ = status;
    }
    changed_.notify_all();
  }
  /// The first failure; `deadline_exceeded` when a path is still not open.
  result<void> wait(std::chrono::nanoseconds limit) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, limit, [this] { return open_ == 0 || !status_; })) return status_;
    return fail(error_code::deadline_exceeded, "a path of nvme.paths is still held by an earlier process of this node");
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t open_;
  result<void> status_;
};

/// Has the keeper hand this configuration to every later worker.
result<void> keep_running(local::keeper_link& keeper, const config::node_config& config) {
  const auto file = make_memory_file("cenote-configuration", config::running_text(config));
  if (!file) return std::unexpected(file.error());
  const std::array fds{file->get()};
  return keeper.put(local::entry_kind::configuration, 0, {}, fds);
}

/// What the node runs with, out of the keeper's hands: the sources may have changed since. They count only when the
/// keeper holds nothing, or what a version with other keys wrote.
result<config::node_config> take_configuration(local::handover& handed, const config::config_sources& sources,
                                               local::keeper_link& keeper) {
  const auto held = std::find_if(handed.entries.begin(), handed.entries.end(),
                                 [](const auto& entry) { return entry.kind == local::entry_kind::configuration; });
  if (held != handed.entries.end() && held->fds.size() == 1) {
    const auto text = read_memory_file(held->fds.front().get());
    handed.entries.erase(held);
    auto running = text ? config::load_running(*text) : result<config::node_config>(std::unexpected(text.error()));
    if (running) return running;
    log_warn(logger("worker"), "what the node runs with cannot be read; taking the sources of the configuration",
             {{"reason", running.error().describe()}});
  }
  auto loaded = config::load(sources);
  if (!loaded) return loaded;
  if (auto kept = keep_running(keeper, *loaded); !kept) return std::unexpected(kept.error());
  return loaded;
}

/// Everything that runs, in the order in which it must be destroyed (last member first).
class worker {
 public:
  worker(const worker_options& options, local::keeper_link& keeper, config_ptr config, unique_fd signals)
      : options_(options),
        keeper_(keeper),
        config_(std::move(config)),
        signals_(std::move(signals)),
        system_config_(config_->node.threads != 0 ? config_->node.threads : 2),
        system_(system_config_) {}

  result<void> start(local::handover handed) {
    const auto begun = std::chrono::steady_clock::now();
    install_kill(config_->debug, handed.epoch);
    auto path = data_path::start(system_, [count = exceptions_](auto, const std::string& what) {
      ++*count;
      log_error(logger("server"), "a doorbell was not answered", {{"reason", what}});
    });
    if (!path) return std::unexpected(path.error());
    data_path_ = std::move(*path);
    if (!config_->nvme.paths.empty()) make_nvme(handed.entries);
    std::erase_if(handed.entries, [](const auto& each) { return each.kind == local::entry_kind::removals; });
    auto reserve = take_reserve(handed.entries);
    recovery recover(*config_, keeper_);
    auto state = recover.run(std::move(handed.entries));
    if (!state) return std::unexpected(state.error().in("recovery"));
    make_provisioner();
    std::vector<session_ptr> known(state->sessions.begin(), state->sessions.end());
    const std::uint64_t blocks = state->blocks;
    const std::vector<dram::session_number> suspects = state->store->suspects();
    for (const std::span<std::byte> memory : state->store->slab_memory()) provisioner_->adopt(memory);
    store_ = state->store;
    dram_ = system_.spawn<dram_tier>(
        std::move(state->store), std::move(known),
        [this](std::vector<dram::slab_request> requests) { provisioner_->submit(std::move(requests)); }, nvme_, alive_);
    data_path_->repeat(dram_tier::beat_interval, dram_, beat_atom_v);
    if (nvme_) data_path_->repeat(nvme_tier::beat_interval, nvme_, beat_atom_v);
    if (devices_) {
      devices_->open();
      // Later workers serve what they can; but a node that was set up wrongly shall not start.
      if (auto opened = handed.epoch == 1 ? gate_->wait(patience_with_paths) : result<void>(); !opened) {
        bad_setup_ = true;
        return std::unexpected(opened.error().in("nvme"));
      }
    }
    prefetch_ = system_.spawn<prefetch_planner>(prefetch_options_of(*config_), dram_);
    node_ = system_.spawn<node>(
        dram_, prefetch_, [this](const std::string& reason) { fatal(reason); }, nvme_);
    server_context context{system_,
                           keeper_,
                           *data_path_,
                           dram_,
                           node_,
                           handed.epoch,
                           handed.node_started,
                           handed.restarts,
                           state->next_instance,
                           config::socket_path(*config_),
                           bind_http(),
                           exceptions_,
                           [this] { return provisioner_->populated(); }};
    auto made = server::start(std::move(context), config_);
    if (!made) return std::unexpected(made.error());
    server_ = std::move(*made);
    for (const auto& session : state->sessions) server_->adopt(session);
    for (const dram::session_number number : suspects) server_->end_suspect(number);
    if (auto serving = server_->serve(std::move(handed.listener)); !serving) return serving;
    watch_over_all();
    if (auto ready = keeper_.ready(); !ready) return ready;
    provisioner_->fill_reserve(std::move(reserve));  // only now: it has words for the keeper, too
    if (http_) serve_http();
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
    log_info(logger("worker"), "serving", {{"epoch", handed.epoch}, {"blocks", blocks}, {"took_ms", took.count()}});
    return {};
  }

  /// After a failed start.
  [[noreturn]] void give_up(const error& why) {
    log_error(logger("worker"), "did not start", {{"reason", why.describe()}});
    keeper_.fatal(why.describe());
    ::_exit(bad_setup_ ? exit_config : exit_failed);
  }

  /// Until a signal or the keeper's end says otherwise.
  int serve() {
    while (true) {
      // Of the keeper only its end counts here: answers to calls are read by the threads that made them.
      std::array<pollfd, 2> waits{pollfd{signals_.get(), POLLIN, 0}, pollfd{keeper_.fd(), 0, 0}};
      const int ready = ::poll(waits.data(), waits.size(), until_next_beat());
      if (ready < 0 && errno != EINTR) return exit_failed;
      beat();
      if (ready <= 0) continue;
      if (waits[1].revents != 0) {
        log_warn(logger("worker"), "the keeper is gone: draining");
        return drain(keeper_.keeper_is_dead());
      }
      if ((waits[0].revents & POLLIN) == 0) continue;
      signalfd_siginfo signal{};
      if (::read(signals_.get(), &signal, sizeof signal) != sizeof signal) continue;
      switch (signal.ssi_signo) {
        case SIGTERM: return drain(keeper_.keeper_is_dead());
        case SIGHUP: try_to_reload(); break;
        case SIGUSR2:
          // Hand over: every segment stays as it is, the next worker goes on.
          log_info(logger("worker"), "handing over");
          ::_exit(0);
        default: break;
      }
    }
  }

 private:
  using clock = std::chrono::steady_clock;

  void watch_over_all() {
    pulse_.add_actor("the DRAM tier", system_, dram_);
    if (nvme_) pulse_.add_actor("the NVMe tier", system_, nvme_);
    pulse_.add_actor("the planner of prefetches", system_, prefetch_);
    pulse_.add_actor("the node's actor", system_, node_);
    server_->watch_over(pulse_);
  }

  [[nodiscard]] std::chrono::milliseconds beat_length() const {
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(config_->node.hang_timeout);
    return limit.count() == 0 ? limit : local::beat_of(limit);
  }

  /// For poll().
  [[nodiscard]] int until_next_beat() const {
    if (beat_length().count() == 0) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_beat_ - clock::now());
    return static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), beat_length()).count());
  }

  /// Tells the keeper that all is well, or who does not answer. Who waits too long is the keeper's to say: after a stop
  /// of the whole process all answer again.
  void beat() {
    const auto length = beat_length();
    if (length.count() == 0 || clock::now() < next_beat_) return;
    next_beat_ = clock::now() + length;
    const auto [missed, late] = pulse_.beat();
    if (missed == 2) log_warn(logger("worker"), "no answer yet", {{"from", late}, {"ms", 2 * length.count()}});
    keeper_.alive(missed * length, late);
  }

  void make_provisioner() {
    dram::provisioner_options options;
    options.populate = config_->dram.populate;
    options.huge_pages = config_->dram.huge_pages == config::huge_pages::automatic;
    options.numa_node = config_->dram.numa_node.value_or(-1);
    options.on_exception = [count = exceptions_](const std::string& what) {
      ++*count;
      log_error(logger("dram"), "memory was not prepared", {{"reason", what}});
    };
    options.ahead = reserve_options_of(*config_);
    options.ahead.keep = [this](std::uint64_t id, const unique_fd& memory) {
      return keeper_.put(local::entry_kind::reserve, id, {}, std::array{memory.get()});
    };
    options.ahead.drop = [this](std::uint64_t id) { (void)keeper_.drop(local::entry_kind::reserve, id); };
    options.ahead.report = log_populated;
    dram::transfer_hooks hooks;
    if (devices_) {
      hooks.pin = [to = devices_](std::span<std::byte> memory) { to->pin(memory); };
      hooks.unpin = [to = devices_](std::span<std::byte> memory) { to->unpin(memory); };
    }
    provisioner_ = std::make_unique<dram::provisioner>(
        options,
        [this](const dram::slab_description& slab, const memory::segment& memory) -> result<void> {
          byte_writer meta;
          dram::encode(meta, slab, memory.size());
          const std::array fds{memory.fd().get()};
          return keeper_.put(local::entry_kind::slab, slab_id(slab), meta.bytes(), fds);
        },
        [this](const dram::slab_description& slab) { return keeper_.drop(local::entry_kind::slab, slab_id(slab)); },
        [this](dram::slab_outcome outcome) {
          caf::anon_send(dram_, slab_atom_v, std::make_shared<dram::slab_outcome>(std::move(outcome)));
        },
        std::move(hooks),
        [this](std::uint32_t instance) { return keeper_.drop(local::entry_kind::instance, instance); });
  }

  void make_nvme(std::vector<local::registry_entry>& entries) {
    nvme::device_events events;
    gate_ = std::make_unique<path_gate>(config_->nvme.paths.size());
    events.opened = [this](nvme::opened_path opened) {
      gate_->opened(opened.full ? result<void>{} : opened.status);
      caf::anon_send(nvme_, path_atom_v, std::make_shared<nvme::opened_path>(std::move(opened)));
    };
    events.completed = [this](std::uint32_t path, std::vector<nvme::io_completion> completions) {
      data_path_->deliver(nvme_, io_atom_v, std::make_shared<const io_done>(io_done{path, std::move(completions)}));
    };
    events.saved = [this](std::uint32_t path, std::uint64_t tag, const nvme::save_status& how) {
      data_path_->deliver(nvme_, saved_atom_v, std::make_shared<const save_report>(save_report{path, tag, how}));
    };
    events.broke = [this](std::uint32_t path, const std::string& what) {
      ++*exceptions_;
      caf::anon_send(nvme_, broke_atom_v, path, what);
    };
    auto options = device_options_of(*config_);
    options.kept = take_removals(*config_, keeper_, entries);
    devices_ = std::make_shared<nvme::devices>(std::move(options), std::move(events));
    nvme_ = system_.spawn<nvme_tier>(nvme_options_of(*config_), nvme_ttls_of(*config_), devices_);
  }

  /// Where those who watch the node find it; empty when they do not. A port that is taken is no reason not to serve.
  std::string bind_http() {
    if (!config_->metrics.listen) return {};
    auto bound = http::server::bind(*config_->metrics.listen);
    if (!bound) {
      log_warn(logger("worker"), "no metrics over HTTP",
               {{"metrics.listen", config_->metrics.listen->text()}, {"reason", bound.error().describe()}});
      return {};
    }
    http_ = std::move(*bound);
    return http_->where().text();
  }

  void serve_http() {
    const auto page_of = [](result<std::string> text, const char* type) -> result<http::page> {
      if (!text) return std::unexpected(text.error());
      return http::page{type, std::move(*text)};
    };
    const auto health_of = [](const result<void>& found) -> result<std::string> {
      if (!found) return std::unexpected(found.error());
      return "ok\n";
    };
    http_->serve(
        {{"/metrics", {[=, this] { return page_of(server_->metrics(), "text/plain; version=0.0.4"); }}},
         {"/status", {[=, this] { return page_of(server_->status(), "application/json"); }}},
         {"/healthz",
          {.make = [=, this] { return page_of(health_of(alive_->check()), "text/plain"); }, .from_memory = true}}});
  }

  void try_to_reload() {
    try {
      reload();
    } catch (const std::exception& thrown) {
      ++*exceptions_;
      log_error(logger("worker"), "configuration not reloaded", {{"reason", thrown.what()}});
    }
  }

  void reload() {
    auto wanted = config::load(options_.sources);
    auto next = wanted ? config::reloaded(*config_, *wanted) : wanted;
    if (!next) {
      log_error(logger("worker"), "configuration not reloaded", {{"reason", next.error().describe()}});
      return;
    }
    for (const std::string& key : config::changed_unreloadable(*config_, *wanted)) {
      log_warn(logger("worker"), "needs a restart to change", {{"key", key}});
    }
    config_ = std::make_shared<const config::node_config>(std::move(*next));
    (void)set_levels(config_->log.level);
    server_->reload(config_);
    caf::anon_send(node_, reload_atom_v, config_);
    if (auto kept = keep_running(keeper_, *config_); !kept) {
      log_error(logger("worker"), "a later worker would start with the configuration of before",
                {{"reason", kept.error().describe()}});
    }
    log_info(logger("worker"), "configuration reloaded");
  }

  int drain(bool keeper_is_dead) {
    const watchdog limit(config_->node.drain_timeout + std::chrono::seconds(2));
    if (http_) http_->stop();  // its pages ask the server
    server_->drain(keeper_is_dead);
    {
      const caf::scoped_actor self(system_);
      self->request(node_, config_->node.drain_timeout, drain_atom_v)
          .receive([](const outcome&) {}, [](const caf::error&) {});
    }
    server_->stop();
    server_.reset();
    caf::anon_send_exit(node_, caf::exit_reason::user_shutdown);
    node_ = nullptr;
    prefetch_ = nullptr;
    dram_ = nullptr;
    system_.await_all_actors_done();
    if (devices_) devices_->stop();
    data_path_->stop();
    nvme_ = nullptr;  // only now: the devices' threads send to it
    provisioner_.reset();
    log_info(logger("worker"), "drained");
    return 0;
  }

  [[noreturn]] void fatal(const std::string& reason) {
    log_error(logger("worker"), "ending: the keeper starts the next worker", {{"reason", reason}});
    keeper_.fatal(reason);
    ::_exit(exit_failed);
  }

  const worker_options& options_;
  local::keeper_link& keeper_;
  config_ptr config_;
  unique_fd signals_;
  worker_system_config system_config_;
  std::unique_ptr<data_path> data_path_;  ///< it ran actors of the system, which ends first
  caf::actor_system system_;
  /// For its memory: threads of the devices and the provisioner outlive the tier's actor.
  std::shared_ptr<const void> store_;
  std::unique_ptr<dram::provisioner> provisioner_;
  bool bad_setup_ = false;
  std::shared_ptr<std::atomic<std::uint64_t>> exceptions_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::unique_ptr<path_gate> gate_;
  nvme_tier_actor nvme_;
  std::shared_ptr<nvme::devices> devices_;
  dram_tier_actor dram_;
  prefetch_actor prefetch_;
  node_actor node_;
  std::shared_ptr<health> alive_ = std::make_shared<health>();
  std::unique_ptr<server> server_;
  std::unique_ptr<http::server> http_;
  pulse pulse_;
  clock::time_point next_beat_{};
};

/// Whom the last words of this process go to.
std::atomic<local::keeper_link*> heir{nullptr};

/// An exception that nobody took, on any thread: the state behind it cannot be trusted. The keeper starts the next
/// worker, and knows why.
[[noreturn]] void end_by_exception() noexcept {
  std::array<char, 16> thread{};
  ::pthread_getname_np(::pthread_self(), thread.data(), thread.size());
  std::string reason = std::string("an exception ended the thread ") + thread.data();
  try {
    if (std::current_exception()) std::rethrow_exception(std::current_exception());
  } catch (const std::exception& thrown) {
    reason += std::string(": ") + thrown.what();
  } catch (...) {
    reason += ": not a std::exception";
  }
  log_error(logger("worker"), "ending: the keeper starts the next worker", {{"reason", reason}});
  if (auto* keeper = heir.load()) keeper->fatal(reason);
  std::abort();
}

result<unique_fd> take_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR2}) sigaddset(&signals, number);
  if (::sigprocmask(SIG_BLOCK, &signals, nullptr) != 0) return fail_errno("sigprocmask");
  unique_fd fd(::signalfd(-1, &signals, SFD_CLOEXEC));
  if (!fd) return fail_errno("signalfd");
  return fd;
}

}  // namespace

int run_worker(const worker_options& options) {
  local::keeper_link keeper{unique_fd(options.keeper_fd)};
  heir = &keeper;
  std::set_terminate(end_by_exception);
  auto handed = keeper.receive_handover();
  if (!handed) {
    log_error(logger("worker"), "no handover", {{"reason", handed.error().describe()}});
    return exit_failed;
  }
  auto config = take_configuration(*handed, options.sources, keeper);
  if (!config || !init_logging(config->log.level, config->log.format)) {
    log_error(logger("worker"), "configuration", {{"reason", config ? "log.level" : config.error().describe()}});
    return exit_config;
  }
  auto signals = take_signals();
  if (!signals) {
    log_error(logger("worker"), "no signals", {{"reason", signals.error().describe()}});
    return exit_failed;
  }
  ::signal(SIGPIPE, SIG_IGN);
  worker running(options, keeper, std::make_shared<const config::node_config>(std::move(*config)), std::move(*signals));
  if (const auto started = running.start(std::move(*handed)); !started) {
    running.give_up(started.error());  // actors may run already; the keeper decides what is next
  }
  return running.serve();
}

}  // namespace cenote
