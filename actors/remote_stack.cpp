#include "actors/remote_stack.hpp"

#include <algorithm>
#include <filesystem>
#include <future>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/remote_report.hpp"
#include "actors/remote_tier.hpp"
#include "config/logging.hpp"
#include "config/node_config.hpp"
#include "core/calendar_clock.hpp"
#include "core/checksum.hpp"
#include "core/folder_check.hpp"
#include "core/runtime_paths.hpp"
#include "tiers/remote/peers_backend.hpp"
#include "tiers/remote/redis_backend.hpp"
#include "transport/redis/server_socket.hpp"

namespace cenote {

namespace {

constexpr std::string_view peers_name = "peers";  // of `remote.backends`: the other nodes

blocks::edge_options remote_edge_of(const config::node_config& config) {
  blocks::edge_options options;
  options.ingest = config.remote.ingest;
  options.hot_accesses = config.remote.hot_accesses;
  options.keep_copy = config.remote.keep_copy;
  options.write_window = config.remote.write_window;
  options.read_window = config.remote.read_window;
  options.hinted = false;
  const auto peers = static_cast<std::size_t>(std::ranges::count(config.remote.backends, peers_name));
  const bool are_nodes = peers == config.remote.backends.size();
  options.names_arrival = peers == 0;
  options.late_offers = are_nodes ? blocks::late_offers::lacking : blocks::late_offers::missed;
  return options;
}

result<std::filesystem::path> state_directory(const config::node_config& config) {
  if (!config.remote.state_dir.empty()) return config.remote.state_dir;
  auto found = default_state_dir();
  if (!found) return std::unexpected(found.error().in("remote.state_dir: name a directory"));
  return *found;
}

constexpr std::string_view why_no_peers = "remote.backends: `peers` are other nodes; this one needs cluster.name";

/// A get goes to the next backend after a miss: together they keep to the time-out.
std::chrono::milliseconds timeout_of(const config::node_config& config) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(config.remote.timeout) /
         static_cast<int>(config.remote.backends.size());
}

/// Errors begin with the key.
result<remote::redis_options> redis_options_of(const std::string& text, const config::node_config& config) {
  auto url = redis::parse_server_url(text);
  if (!url) return std::unexpected(url.error().in("remote.backends"));
  remote::redis_options options;
  options.url = std::move(*url);
  options.credentials = config.remote.auth_file;
  auto state = state_directory(config);
  if (!state) return std::unexpected(state.error());
  options.state = std::move(*state);
  options.timeout = timeout_of(config);
  options.open_bytes = config.remote.read_window + config.remote.write_window;
  return options;
}

result<void> check_names(const std::vector<std::string>& backends) {
  if (backends.size() > remote::max_backends) {
    return fail(error_code::invalid_config, "remote.backends names " + std::to_string(backends.size()) +
                                                " places; at most " + std::to_string(remote::max_backends) +
                                                " are allowed");
  }
  for (auto each = backends.begin(); each != backends.end(); ++each) {
    if (std::find(backends.begin(), each, *each) == each) continue;
    return fail(error_code::invalid_config, "remote.backends names a place twice; name each once");
  }
  return {};
}

/// `files`: of the epochs of backends that were looked at before.
finding check_server(const std::string& text, const config::node_config& config,
                     std::set<std::filesystem::path>& files) {
  const std::string subject = "remote tier";
  const auto options = redis_options_of(text, config);
  if (!options) {
    const bool is_state = options.error().message().starts_with("remote.state_dir");
    return failure_of(is_state ? "remote.state_dir" : "remote.backends", subject, text, options.error());
  }
  const std::string& credentials = config.remote.auth_file;
  const auto secret =
      credentials.empty() ? redis::server_credentials() : redis::read_credentials(credentials, options->url.user);
  if (!secret) return failure_of("remote.auth_file", subject, credentials, secret.error());
  if (const auto made = redis::make_stream(options->url.tls, options->url.servers.front().place.host); !made)
    return failure_of("remote.backends", subject, options->url.name(), made.error());
  const auto usable = check_folder(options->state);
  if (!usable && usable.error().code() == error_code::no_space)  // what is there is enough to serve
    return {finding::level::warn, subject, options->state.native(), usable.error().in("remote.state_dir").message(),
            "remote.state_dir"};
  if (!usable) return failure_of("remote.state_dir", subject, options->state.native(), usable.error());
  for (std::filesystem::path& file : remote::epoch_files(*options)) {
    if (files.insert(std::move(file)).second) continue;
    return failure_of("remote.backends", subject, text,
                      {error_code::invalid_config,
                       "the server of `" + options->url.name() +
                           "`, its database and its prefix are those of a place before it; name each once"});
  }
  return {finding::level::ok, subject, options->url.name()};
}

std::vector<finding> check_backends(const config::node_config& config) {
  const std::string subject = "remote tier";
  if (const auto named = check_names(config.remote.backends); !named)
    return {failure_of("remote.backends", subject, std::to_string(config.remote.backends.size()) + " places",
                       named.error())};
  std::vector<finding> all;
  std::set<std::filesystem::path> files;
  for (const std::string& text : config.remote.backends) {
    if (text != peers_name) {
      finding server = check_server(text, config, files);
      // A common lack has one sentence.
      const bool is_known = !server.remedy.empty() && std::ranges::count(all, server.remedy, &finding::remedy) != 0;
      if (!is_known) all.push_back(std::move(server));
    } else if (config.cluster.name.empty()) {
      all.push_back(
          failure_of("remote.backends", subject, text, {error_code::invalid_config, std::string(why_no_peers)}));
    } else {
      all.push_back({finding::level::ok, subject, "other nodes"});
    }
  }
  return all;
}

/// The servers of a backend with its database and its prefix, and not the way there: TLS, or another of its files, is
/// no other place.
std::string identity_of(const remote::redis_options& options) {
  std::vector<std::filesystem::path> files = remote::epoch_files(options);
  std::ranges::sort(files);
  std::string identity;
  for (const std::filesystem::path& each : files) identity += each.filename().native() + '\0';
  return identity;
}

/// One for each node and backend: several nodes of one user may have one directory of state. `backend`: its identity;
/// empty: the other nodes.
result<std::filesystem::path> removals_file(const config::node_config& config, const std::string& backend) {
  const auto folder = state_directory(config);
  if (!folder) return std::unexpected(folder.error());
  std::error_code failed;
  std::filesystem::create_directories(*folder, failed);
  if (failed) return fail(error_code::system, "remote.state_dir: " + folder->native() + ": " + failed.message());
  std::string name = config.cluster.name + '\0' + config::runtime_dir(config);
  if (!backend.empty()) name += '\0' + backend;
  return *folder / ("removals-" + remote::epoch_text(checksum_of(std::as_bytes(std::span(name)))));
}

/// Moves a file that has the name of a backend as it is configured, which it had in the release before.
void adopt_removals(const config::node_config& config, const std::string& text, const std::string& backend) {
  const auto old_file = removals_file(config, text);
  const auto file = removals_file(config, backend);
  std::error_code failed;
  if (!old_file || !file || std::filesystem::exists(*file, failed) || !std::filesystem::exists(*old_file, failed))
    return;
  std::filesystem::rename(*old_file, *file, failed);
}

/// A node without a place for its state serves all the same.
remote::removal_book open_removals(const config::node_config& config, const std::string& backend) {
  const auto file = removals_file(config, backend);
  auto book = file ? remote::removal_book::open(*file, calendar_ns()) : std::unexpected(file.error());
  if (!book) {
    log_warn(logger("remote"), "removals that are not confirmed are forgotten with this worker",
             {{"reason", book.error().describe()}});
    return {};
  }
  if (book->was_damaged())
    log_warn(logger("remote"),
             backend.empty() ? "the file of unconfirmed removals is damaged: all instances count as cleared"
                             : "the file of unconfirmed removals is damaged: a server may still have those blocks",
             {});
  return std::move(*book);
}

class remote_host final : public lower_tier_host {
 public:
  explicit remote_host(const lower_tier_needs& needs) : path_(needs.path), exceptions_(needs.exceptions) {
    try {
      open_backends(needs);
    } catch (...) {
      // The threads of backends that have begun wait for the actor, and whoever ends them for the threads.
      if (!actor_) actor_known_.set_exception(std::current_exception());
      end_backends();
      throw;
    }
  }
  remote_host(const remote_host&) = delete;
  remote_host& operator=(const remote_host&) = delete;
  ~remote_host() override { end_backends(); }  // the actor may have them for longer, and they call this object

  [[nodiscard]] lower_tier tier() const override { return {"the remote tier", actor_, remote_tier::tick_interval}; }
  [[nodiscard]] blocks::transfer_hooks hooks() override { return {}; }
  /// A server that does not answer is no reason not to start; a setting that can never work is.
  result<void> open(bool checked) override {
    if (opened_) return {};
    if (checked) return std::unexpected(opened_.error().in("remote"));
    log_error(logger("remote"), "a backend is not used", {{"reason", opened_.error().describe()}});
    return {};
  }
  void count_unconfirmed(const instance_identity& identity,
                         const std::function<void(remote::unconfirmed_removals)>& answer) override {
    const auto add = remote::sum_of(backends_.size() + 1, answer);
    for (const auto& each : backends_) each->count_unconfirmed(identity, add);
    add({});
  }
  void stop() override { end_backends(); }

 private:
  void end_backends() noexcept {
    for (const auto& each : backends_) each->stop();
  }

  void open_backends(const lower_tier_needs& needs) {
    remote_tier::setup with;
    opened_ = check_names(needs.config->remote.backends);
    if (!opened_) {
      spawn(needs.system, std::move(with));
      return;
    }
    backends_.reserve(needs.config->remote.backends.size());
    for (const std::string& each : needs.config->remote.backends) {
      const auto number = static_cast<remote::backend_number>(backends_.size());
      auto made = each == peers_name ? make_peers(needs, number) : make_backend(each, *needs.config, number);
      if (made) {
        backends_.push_back(std::move(*made));
      } else if (opened_) {
        opened_ = std::unexpected(made.error());
      }
    }
    with.backends = backends_;
    with.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(needs.config->remote.timeout);
    with.kept_here = groups_kept_here(*needs.config);
    with.tell_presence = [this](const remote_tier_actor& to, remote_presence_ptr part) {
      path_.deliver(to, remote_presence_atom_v, std::move(part));
    };
    with.tell_removal = [this](const remote_tier_actor& to, remote_removal_ptr part) {
      path_.deliver(to, remote_removal_atom_v, std::move(part));
    };
    spawn(needs.system, std::move(with));
  }

  void spawn(caf::actor_system& system, remote_tier::setup with) {
    actor_ = system.spawn<remote_tier>(std::move(with));
    actor_known_.set_value(actor_);
  }

  result<std::shared_ptr<remote::backend>> make_backend(const std::string& text, const config::node_config& config,
                                                        remote::backend_number number) {
    auto options = redis_options_of(text, config);
    if (!options) return std::unexpected(options.error());
    const std::string identity = identity_of(*options);
    adopt_removals(config, text, identity);
    auto made = remote::redis_backend::open(*options, events(number), open_removals(config, identity));
    if (!made) return std::unexpected(made.error());
    return std::shared_ptr<remote::backend>(std::move(*made));
  }

  result<std::shared_ptr<remote::backend>> make_peers(const lower_tier_needs& needs, remote::backend_number number) {
    if (!needs.blocks) return fail(error_code::invalid_config, std::string(why_no_peers));
    remote::peers_options options;
    options.timeout = timeout_of(*needs.config);
    options.settle = std::chrono::duration_cast<std::chrono::milliseconds>(needs.config->cluster.settle);
    options.window = needs.config->remote.peer_window;
    options.replicas = needs.config->remote.replicas;
    auto made = std::make_shared<remote::peers_backend>(*needs.blocks, options, events(number),
                                                        open_removals(*needs.config, {}));
    needs.blocks->join(made.get(), nullptr);
    return made;
  }

  /// A backend may speak before there is an actor.
  remote::backend::events events(remote::backend_number number) {
    const auto moved = [this, number](remote::call::kind what) {
      return [this, number, what](std::vector<remote::item_outcome> outcomes) {
        path_.deliver(known_.get(), remote_moved_atom_v,
                      std::make_shared<const remote_outcomes>(number, what, std::move(outcomes)));
      };
    };
    remote::backend::events all;
    all.put = moved(remote::call::kind::put);
    all.got = moved(remote::call::kind::get);
    all.standing = [this, number](result<void> how) {
      path_.deliver(known_.get(), remote_standing_atom_v,
                    std::make_shared<const remote_standing>(number, std::move(how)));
    };
    all.cleared = [this, number](instance_identity identity) {
      path_.deliver(known_.get(), remote_clear_atom_v, std::make_shared<const remote_clear>(number, identity));
    };
    all.notice = [](const std::string& event, const std::string& field, const std::string& value) {
      log_warn(logger("remote"), event, {{field, value}});
    };
    all.on_exception = [count = exceptions_](const std::string& what) {
      ++*count;
      log_error(logger("remote"), "an exception ended a piece of a backend's work", {{"what", what}});
    };
    return all;
  }

  data_path& path_;
  std::shared_ptr<std::atomic<std::uint64_t>> exceptions_;
  result<void> opened_;
  std::promise<remote_tier_actor> actor_known_;
  std::shared_future<remote_tier_actor> known_ = actor_known_.get_future().share();
  remote_tier_actor actor_;  ///< the backends' threads send to it until they have stopped
  std::vector<std::shared_ptr<remote::backend>> backends_;
};

tier_report_ptr remote_example() {
  auto made = std::make_shared<remote_report>();
  made->backends.emplace_back();
  made->describe();
  return made;
}

}  // namespace

lower_tier_kind remote_kind() {
  return {.name = "remote",
          .is_wanted = [](const config::node_config& config) { return !config.remote.backends.empty(); },
          .edge_of = remote_edge_of,
          .make = [](const lower_tier_needs& needs) -> std::unique_ptr<lower_tier_host> {
            return std::make_unique<remote_host>(needs);
          },
          .add_messages = [](caf::actor_system_config& to) { to.add_message_types<caf::id_block::cenote_remote>(); },
          .example = remote_example,
          .check = check_backends};
}

}  // namespace cenote
