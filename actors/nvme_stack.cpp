#include "actors/nvme_stack.hpp"

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "actors/nvme_report.hpp"
#include "actors/nvme_tier.hpp"
#include "config/logging.hpp"
#include "config/node_config.hpp"
#include "tiers/nvme/devices.hpp"
#include "tiers/nvme/pending_removals.hpp"

namespace cenote {

namespace {

constexpr auto patience_with_paths = std::chrono::seconds(15);

blocks::edge_options edge_of(const config::node_config& config) {
  blocks::edge_options options;
  options.hot_accesses = config.nvme.hot_accesses;
  options.keep_copy = config.nvme.keep_copy;
  options.write_window = config.nvme.write_window;
  options.read_window = config.nvme.read_window;
  options.write_ahead = config.nvme.write_ahead;
  options.ingest = config.nvme.ingest;
  return options;
}

nvme::store_options store_options_of(const config::node_config& config) {
  nvme::store_options options;
  options.paths = static_cast<std::uint32_t>(config.nvme.paths.size());
  options.keep_copy = config.nvme.keep_copy;
  options.second_sight = config.nvme.admission == config::admission::second_sight;
  options.policy = config.nvme.policy;
  options.high_water = config.nvme.high_water;
  options.low_water = config.nvme.low_water;
  options.keeps_keys = !config.publish.endpoint.empty();
  return options;
}

nvme::device_options device_options_of(const config::node_config& config) {
  nvme::device_options options;
  options.directories = config.nvme.paths;
  options.capacity = config.nvme.capacity;
  options.holder = config::socket_path(config);
  options.queue_depth = config.nvme.queue_depth;
  options.require_mount = config.nvme.require_mount;
  options.engine = config.nvme.engine;
  options.keeps_keys = !config.publish.endpoint.empty();
  return options;
}

/// One for each path: memory for what the path has not written down of its removals. An empty one: there is none, and
/// its removals do not outlive this worker.
std::vector<memory::segment> keep_removals(const lower_tier_needs& needs) {
  std::vector<memory::segment> all;
  for (const std::string& directory : needs.config->nvme.paths) {
    auto memory = needs.keep_memory(directory, nvme::pending_removals::kept_bytes);
    if (!memory) {
      log_warn(logger("nvme"), "removals that cannot be written down will not outlive this worker",
               {{"path", directory}, {"reason", memory.error().describe()}});
    }
    all.push_back(memory ? std::move(*memory) : memory::segment());
  }
  return all;
}

/// The key that a path's failure is about.
std::string_view key_of(const error& failure) {
  switch (failure.code()) {
    case error_code::no_space: return "nvme.capacity";
    case error_code::unsupported: return "nvme.engine";
    default: return "nvme.paths";
  }
}

finding finding_of_path(const std::string& directory, const result<nvme::path_need>& usable) {
  const std::string subject = "NVMe path";
  if (usable) return {finding::level::ok, subject, directory};
  if (usable.error().code() != error_code::deadline_exceeded)
    return failure_of(key_of(usable.error()), subject, directory, usable.error());
  return {finding::level::warn, subject, directory,
          usable.error().message() + "; by this node, if it runs now: else name another path", "nvme.paths"};
}

/// Paths may share a file system that has room for each of them alone.
class shared_space {
 public:
  void add(const nvme::path_need& need) {
    nvme::path_need& sum = sums_.try_emplace(need.file_system, need.file_system, 0, need.available).first->second;
    sum.bytes += need.bytes;
  }
  [[nodiscard]] result<void> check() const {
    for (const auto& [file_system, sum] : sums_) {
      if (sum.bytes <= sum.available) continue;
      return fail(error_code::no_space, "nvme.paths on one file system need " + std::to_string(sum.bytes) +
                                            " bytes together, and it has " + std::to_string(sum.available));
    }
    return {};
  }

 private:
  std::map<dev_t, nvme::path_need> sums_;
};

std::vector<finding> check_paths(const config::node_config& config) {
  const auto options = device_options_of(config);
  std::vector<finding> all;
  all.reserve(options.directories.size() + 1);
  shared_space space;
  for (const std::string& directory : options.directories) {
    const auto usable = nvme::devices::check(options, directory);
    if (usable) space.add(*usable);
    all.push_back(finding_of_path(directory, usable));
  }
  if (const auto fits = space.check(); !fits)
    all.push_back(failure_of("nvme.capacity", "NVMe paths", "together", fits.error()));
  return all;
}

/// Collects what became of opening the paths.
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

class nvme_host final : public lower_tier_host {
 public:
  explicit nvme_host(const lower_tier_needs& needs)
      : path_(needs.path), exceptions_(needs.exceptions), gate_(needs.config->nvme.paths.size()) {
    auto options = device_options_of(*needs.config);
    options.kept = keep_removals(needs);
    devices_ = std::make_shared<nvme::devices>(std::move(options), events());
    actor_ = needs.system.spawn<nvme_tier>(store_options_of(*needs.config), nvme_ttls_of(*needs.config), devices_);
  }

  [[nodiscard]] lower_tier tier() const override { return {"the NVMe tier", actor_, nvme_tier::tick_interval}; }
  [[nodiscard]] blocks::transfer_hooks hooks() override {
    return {.pin = [to = devices_](std::span<std::byte> memory) { to->pin(memory); },
            .unpin = [to = devices_](std::span<std::byte> memory) { to->unpin(memory); }};
  }
  /// Later workers serve what they can; but a node that was set up wrongly shall not start.
  result<void> open(bool checked) override {
    devices_->open();
    if (!checked) return {};
    auto opened = gate_.wait(patience_with_paths);
    return opened ? opened : std::unexpected(opened.error().in(key_of(opened.error())));
  }
  [[nodiscard]] std::function<void(change_question_ptr)> changes() override {
    return [to = caf::actor_cast<caf::weak_actor_ptr>(actor_)](change_question_ptr question) {
      if (const auto still = to.lock())
        caf::anon_send(caf::actor_cast<nvme_tier_actor>(still), changes_atom_v, std::move(question));
    };
  }
  void stop() override { devices_->stop(); }

 private:
  nvme::device_events events() {
    nvme::device_events all;
    all.opened = [this](nvme::opened_path opened) {
      gate_.opened(opened.full ? result<void>{} : opened.status);
      caf::anon_send(actor_, path_atom_v, std::make_shared<nvme::opened_path>(std::move(opened)));
    };
    all.completed = [this](std::uint32_t path, std::vector<nvme::io_completion> completions) {
      path_.deliver(actor_, io_atom_v, std::make_shared<const io_done>(io_done{path, std::move(completions)}));
    };
    all.saved = [this](std::uint32_t path, std::uint64_t tag, const nvme::save_status& how) {
      path_.deliver(actor_, catalog_saved_atom_v, std::make_shared<const save_report>(save_report{path, tag, how}));
    };
    all.broke = [this](std::uint32_t path, const std::string& what) {
      ++*exceptions_;
      caf::anon_send(actor_, broke_atom_v, path, what);
    };
    return all;
  }

  data_path& path_;
  std::shared_ptr<std::atomic<std::uint64_t>> exceptions_;
  path_gate gate_;
  nvme_tier_actor actor_;  ///< the devices' threads send to it until they have stopped
  std::shared_ptr<nvme::devices> devices_;
};

tier_report_ptr example() {
  auto made = std::make_shared<nvme_report>();
  made->paths.emplace_back();
  made->store.paths.emplace_back();
  made->describe();
  return made;
}

}  // namespace

lower_tier_kind nvme_kind() {
  return {.name = "nvme",
          .is_wanted = [](const config::node_config& config) { return !config.nvme.paths.empty(); },
          .edge_of = edge_of,
          .make = [](const lower_tier_needs& needs) -> std::unique_ptr<lower_tier_host> {
            return std::make_unique<nvme_host>(needs);
          },
          .add_messages = [](caf::actor_system_config& to) { to.add_message_types<caf::id_block::cenote_nvme>(); },
          .example = example,
          .check = check_paths};
}

}  // namespace cenote
