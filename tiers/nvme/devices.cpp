#include "tiers/nvme/devices.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>

#include "tiers/nvme/catalog.hpp"
#include "tiers/nvme/catalog_writer.hpp"
#include "tiers/nvme/path_file.hpp"

namespace cenote::nvme {

namespace {

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;
constexpr std::uint64_t metadata_share = 32;  // one part in so many
constexpr std::uint64_t min_metadata = 8 * MiB;
constexpr std::uint64_t metadata_of_a_block = 384;  // measured: 310 in a small catalog under churn, 210 in a large one
constexpr auto patience = std::chrono::milliseconds(250);  // between two looks at whether we are still wanted

}  // namespace

path_budget budget_of(std::uint64_t path_bytes) noexcept {
  path_budget budget;
  budget.metadata_bytes = std::max(min_metadata, path_bytes / metadata_share);
  budget.data_bytes = path_bytes - std::min(path_bytes, budget.metadata_bytes);
  budget.max_blocks = budget.metadata_bytes / metadata_of_a_block;
  return budget;
}

struct devices::path {
  std::string directory;
  path_budget budget;
  std::optional<path_file> file;
  std::optional<catalog> known;
  std::unique_ptr<catalog_writer> writer;
  std::unique_ptr<io_engine> engine;
  std::thread opener;
  std::atomic<bool> unwanted = false;
  std::mutex mutex;                  // what the opener hands over
  bool open = false;                 // with mutex
  std::vector<instance_spec> specs;  // with mutex: to remember when the path is open
  // With pins_mutex_.
  io_engine* pins = nullptr;                   // when the path is open
  std::vector<std::span<std::byte>> unpinned;  // what came before that, and is not pinned yet
};

devices::devices(device_options options, device_events events)
    : options_(std::move(options)), events_(std::move(events)) {
  for (const std::string& directory : options_.directories) {
    auto made = std::make_unique<path>();
    made->directory = directory;
    made->budget = budget_of(options_.capacity / options_.directories.size());
    paths_.push_back(std::move(made));
  }
}

devices::~devices() {
  stop();
}

std::uint64_t devices::data_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const auto& each : paths_) bytes += each->budget.data_bytes;
  return bytes;
}

void devices::open() {
  for (std::uint32_t number = 0; number < paths_.size(); ++number) {
    paths_[number]->opener = std::thread([this, number] { open_one(number); });
  }
}

void devices::open_one(std::uint32_t number) {
  path& into = *paths_[number];
  const auto begun = std::chrono::steady_clock::now();
  opened_path found;
  found.path = number;
  found.directory = into.directory;
  found.budget = into.budget;
  do {
    found.status = open_path(into, found);
  } while (!found.status && found.status.error().code() == error_code::deadline_exceeded && !into.unwanted);
  if (into.unwanted) return;
  found.took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
  if (found.status) {
    const std::lock_guard lock(into.mutex);
    into.open = true;
    for (const instance_spec& spec : into.specs) into.writer->remember(spec);
    into.specs.clear();
  }
  const bool works = found.status.has_value();
  events_.opened(std::move(found));
  if (works) pin_waiting(into);
}

void devices::pin_waiting(path& of) {
  while (!of.unwanted) {
    const std::lock_guard lock(pins_mutex_);
    of.pins = of.engine.get();
    if (of.unpinned.empty()) return;
    of.pins->register_memory(of.unpinned.back());
    of.unpinned.pop_back();
  }
}

result<void> devices::open_path(path& into, opened_path& found) {
  if (!into.file) {
    auto file = path_file::open({.directory = into.directory,
                                 .bytes = into.budget.data_bytes,
                                 .holder = options_.holder,
                                 .patience = patience});
    if (!file) return std::unexpected(file.error());
    into.file.emplace(std::move(*file));
  }
  found.end = into.file->bytes();
  found.direct = into.file->direct();
  const catalog_options wanted{.directory = into.directory,
                               .store_id = into.file->store_id(),
                               .max_bytes = into.budget.metadata_bytes,
                               .read_only = false};
  auto known = catalog::open(wanted);
  result<load_counts> counts = load_counts{};
  const auto read = [&] {
    found.blocks.clear();
    counts = known->load([&](const stored_block& block) {
      if (const auto small = adopted_from(block)) found.blocks.push_back(*small);
    });
    return counts.has_value();
  };
  if (known ? !read() : known.error().code() == error_code::malformed) {
    found.set_aside = known ? counts.error().message() : known.error().message();
    if (known) known = fail(error_code::malformed, "");  // closes it
    if (auto moved = catalog::set_aside(into.directory); !moved) return moved;
    found.blocks.clear();
    counts = load_counts{};
    known = catalog::open(wanted);
  }
  if (!known) return std::unexpected(known.error());
  found.damaged = counts->damaged;
  std::ranges::stable_sort(found.blocks, {}, &adopted_block::touch);
  if (auto specs = known->instances()) {
    for (const auto& [identity, spec] : *specs) found.instances.emplace_back(identity, spec.id);
  }
  into.known.emplace(std::move(*known));
  into.writer = std::make_unique<catalog_writer>(*into.known,
                                                 [this](std::span<const std::uint64_t> tags, const result<void>& how) {
                                                   for (const std::uint64_t tag : tags) events_.saved(tag, how);
                                                 });
  auto engine = make_engine(options_.engine, *into.file, {.queue_depth = options_.queue_depth},
                            [this, number = found.path](std::span<const io_completion> done) {
                              events_.completed(number, {done.begin(), done.end()});
                            });
  if (!engine) return std::unexpected(engine.error());
  into.engine = std::move(*engine);
  found.engine = into.engine->name();
  return {};
}

void devices::pin(std::span<std::byte> memory) {
  const std::lock_guard lock(pins_mutex_);
  for (const auto& each : paths_) {
    if (each->pins != nullptr && each->unpinned.empty()) {
      each->pins->register_memory(memory);
    } else {
      each->unpinned.push_back(memory);
    }
  }
}

void devices::unpin(std::span<std::byte> memory) {
  const std::lock_guard lock(pins_mutex_);
  const auto inside = [&](std::span<std::byte> piece) {
    return piece.data() >= memory.data() && piece.data() < memory.data() + memory.size();
  };
  for (const auto& each : paths_) {
    std::erase_if(each->unpinned, inside);
    if (each->pins != nullptr) each->pins->unregister_memory(memory);
  }
}

std::uint64_t devices::pinned_bytes(std::uint32_t number) const noexcept {
  return paths_[number]->engine->registered_bytes();
}

void devices::submit(const std::vector<path_request>& requests) {
  std::vector<io_request> batch;
  for (std::uint32_t number = 0; number < paths_.size(); ++number) {
    batch.clear();
    for (const path_request& each : requests) {
      if (each.path == number) batch.push_back(each.io);
    }
    if (!batch.empty()) paths_[number]->engine->submit(batch);
  }
}

std::size_t devices::save(std::vector<path_change> changes, std::uint64_t tag) {
  std::size_t touched = 0;
  for (std::uint32_t number = 0; number < paths_.size(); ++number) {
    std::vector<catalog_change> batch;
    for (path_change& each : changes) {
      if (each.path == number) batch.push_back(std::move(each.change));
    }
    const std::lock_guard lock(paths_[number]->mutex);
    if (batch.empty() || !paths_[number]->open) continue;
    ++touched;
    paths_[number]->writer->submit(std::move(batch), tag);
  }
  return touched;
}

void devices::remember(const instance_spec& spec) {
  for (const auto& each : paths_) {
    const std::lock_guard lock(each->mutex);
    if (each->open) {
      each->writer->remember(spec);
    } else {
      each->specs.push_back(spec);
    }
  }
}

void devices::stop() noexcept {
  for (const auto& each : paths_) each->unwanted = true;
  for (const auto& each : paths_) {
    if (each->opener.joinable()) each->opener.join();
    if (each->engine) each->engine->stop();
    if (each->writer) each->writer->stop();
  }
}

}  // namespace cenote::nvme
