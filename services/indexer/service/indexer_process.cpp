#include "services/indexer/service/indexer_process.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>

#include "config/cluster_rules.hpp"
#include "config/indexer_rules.hpp"
#include "config/logging.hpp"
#include "services/indexer/http/indexer_service.hpp"

namespace cenote::indexer {

namespace {

event_engine engine_of(config::event_source source) {
  switch (source) {
    case config::event_source::automatic: break;
    case config::event_source::vllm: return event_engine::vllm;
    case config::event_source::sglang: return event_engine::sglang;
    case config::event_source::cenote: return event_engine::cenote;
  }
  return event_engine::automatic;
}

std::optional<clear_scope> scope_of(config::cleared_media media) {
  switch (media) {
    case config::cleared_media::automatic: break;
    case config::cleared_media::gpu: return clear_scope::gpu;
    case config::cleared_media::all: return clear_scope::all;
  }
  return std::nullopt;
}

publisher_options options_of(const std::string& name, const config::publisher_config& publisher) {
  return {.name = name,
          .endpoint = publisher.endpoint,
          .replay = publisher.replay,
          .pod = publisher.pod,
          .model = publisher.model,
          .node = publisher.node,
          .engine = engine_of(publisher.engine),
          .clear = scope_of(publisher.clear)};
}

std::map<std::string, publisher_options> publishers_of(const config::node_config& config) {
  std::map<std::string, publisher_options> all;
  for (const auto& [name, publisher] : config.publishers) all.emplace(name, options_of(name, publisher));
  return all;
}

token_processor processor_of(const config::index_section& index) {
  const bool is_fnv = index.key == config::index_key::fnv64_cbor;
  return token_processor::seeded(is_fnv ? key_chain::fnv64_cbor : key_chain::xxh3, index.seed);
}

subscriber_options subscriber_options_of(const config::node_config& config) {
  subscriber_options options;
  options.bind = config.events.bind;
  options.topic = config.events.topic;
  options.engine = engine_of(config.events.engine);
  options.ranks = config.events.ranks;
  options.replay_port = config.events.replay_port;
  options.feed.grace = std::chrono::duration_cast<std::chrono::milliseconds>(config.events.grace);
  return options;
}

/// Empty: none is asked.
result<std::string> token_of(const config::indexer_section& indexer) {
  if (indexer.token_file.empty()) return {};
  const auto token = config::read_secret(indexer.token_file, "the token of requests (indexer.token_file)");
  if (!token) return std::unexpected(token.error());
  return std::string(reinterpret_cast<const char*>(token->data()), token->size());
}

http::tls_files tls_files_of(const config::indexer_section& indexer) {
  return {.certificate = indexer.tls_cert, .key = indexer.tls_key, .client_ca = indexer.tls_ca};
}

unsigned threads_of(const config::indexer_section& indexer) {
  constexpr unsigned most_chosen = 8;
  if (indexer.threads != 0) return indexer.threads;
  return std::clamp(std::thread::hardware_concurrency(), 1U, most_chosen);
}

}  // namespace

indexer_process::indexer_process(const config::node_config& config)
    : processor_(processor_of(config.index)),
      pod_ports_{config.discovery.kubernetes_port, config.discovery.kubernetes_replay_port, config.events.ranks},
      configured_(publishers_of(config)),
      discovery_file_(config.discovery.file) {}

indexer_process::~indexer_process() {
  stop();
}

result<std::unique_ptr<indexer_process>> indexer_process::start(const config::node_config& config) {
  if (auto checked = config::check_indexer(config); !checked) return std::unexpected(checked.error());
  std::unique_ptr<indexer_process> made(new indexer_process(config));
  if (auto opened = made->open_index(config.index); !opened) return std::unexpected(opened.error());
  made->set_scoring(config);
  auto events = subscriber::start(subscriber_options_of(config), made->sink());
  if (!events) return std::unexpected(events.error());
  made->events_ = std::move(*events);
  if (auto opened = made->open_discovery(config); !opened) return std::unexpected(opened.error());
  if (auto opened = made->open_tokenizer(config); !opened) return std::unexpected(opened.error());
  const service_parts parts{
      .events = *made->events_,
      .questions = made->questions_,
      .start = std::chrono::steady_clock::now(),
      .texts = made->texts_.get(),
      .pods = made->pods_.get(),
      .names = config.indexer.metric_aliases ? metric_names::own_llmd : metric_names::own,
  };
  if (auto opened = made->open_server(config, parts); !opened) return std::unexpected(opened.error());
  if (auto opened = made->open_rpc(config, parts); !opened) return std::unexpected(opened.error());
  made->follow(made->wanted_publishers());
  made->look_for_publishers();
  return made;
}

result<void> indexer_process::open_discovery(const config::node_config& config) {
  const config::discovery_section& settings = config.discovery;
  if (settings.kubernetes_selector.empty()) return {};
  auto opened = kubernetes_watch::start({.server = settings.kubernetes_server,
                                         .account = settings.kubernetes_account,
                                         .selector = settings.kubernetes_selector,
                                         .place = settings.kubernetes_namespace});
  if (!opened) return std::unexpected(opened.error().in("discovery.kubernetes"));
  pods_ = std::move(*opened);
  return {};
}

result<void> indexer_process::open_index(const config::index_section& settings) {
  if (settings.backend == config::index_backend::redis) {
    auto opened = shared_index::open(settings, processor_);
    if (!opened) return std::unexpected(opened.error());
    shared_ = std::move(*opened);
    return {};
  }
  try {
    memory_ = std::make_unique<memory_index>(settings, processor_);
  } catch (const std::bad_alloc&) {
    return fail(error_code::invalid_config, "index.memory is too small for an index, or the machine does not have it");
  }
  return {};
}

result<void> indexer_process::open_tokenizer(const config::node_config& config) {
  const config::tokenizer_section& settings = config.tokenizer;
  std::string socket = settings.socket;
  if (!settings.command.empty()) {
    auto process = tokenizer_process::start({.command = settings.command,
                                             .socket = settings.socket,
                                             .models = settings.models,
                                             .directories = settings.directories,
                                             .hub = settings.hub,
                                             .cache = settings.cache,
                                             .workers = settings.workers},
                                            std::chrono::steady_clock::now());
    if (!process) return std::unexpected(process.error());
    socket = tokenizer_.emplace(std::move(*process)).socket();
  }
  if (socket.empty()) return {};
  auto texts = indexer::open_tokenizer({.socket = std::move(socket)});
  if (!texts) return std::unexpected(texts.error());
  texts_ = std::move(*texts);
  return {};
}

result<void> indexer_process::open_server(const config::node_config& config, service_parts parts) {
  const config::indexer_section& settings = config.indexer;
  http::request_server_options options;
  if (settings.listen) options.addresses.push_back(*settings.listen);
  if (!settings.socket.empty()) options.sockets.push_back({.path = settings.socket});
  auto token = token_of(settings);
  if (!token) return std::unexpected(token.error());
  options.token = std::move(*token);
  options.open_paths = {"/healthz", "/readyz"};
  options.tls = tls_files_of(settings);
  options.threads = threads_of(settings);
  auto server = http::request_server::bind(std::move(options));
  if (!server) return std::unexpected(server.error());
  server_ = std::move(*server);
  parts.server = server_.get();
  server_->serve([this, parts]() -> std::unique_ptr<http::request_handler> {
    auto calls = make_calls(parts);  // of 128 readers there are as many as threads
    return std::make_unique<indexer_service>(std::move(calls.value()));
  });
  return {};
}

// A build without gRPC starts nevertheless with the default address.
result<void> indexer_process::open_rpc(const config::node_config& config, const service_parts& parts) {
  const config::indexer_section& settings = config.indexer;
  if (!settings.grpc) return {};
  rpc::rpc_server_options options;
  options.addresses = {*settings.grpc};
  auto token = token_of(settings);
  if (!token) return std::unexpected(token.error());
  options.token = std::move(*token);
  options.tls = tls_files_of(settings);
  auto opened =
      indexer_rpc::start(std::move(options), threads_of(settings), [this, parts] { return make_calls(parts); });
  if (opened) {
    rpc_ = std::move(*opened);
    return {};
  }
  const config::setting& key = config.settings.find("indexer.grpc")->second;
  if (opened.error().code() == error_code::unsupported && key.source == "default") return {};
  return std::unexpected(opened.error().in("indexer.grpc (" + key.source + ")"));
}

void indexer_process::set_scoring(const config::node_config& config) {
  if (shared_) return shared_->facts().set_weights({config.scoring.weights.begin(), config.scoring.weights.end()});
  memory_->set_scoring(config.scoring);
  if (events_) events_->wake();
}

batch_sink& indexer_process::sink() noexcept {
  if (shared_) return shared_->writer();
  return memory_->writer();
}

result<std::unique_ptr<indexer_calls>> indexer_process::make_calls(const service_parts& parts) {
  const auto as_calls = [](auto calls) -> result<std::unique_ptr<indexer_calls>> {
    if (!calls) return std::unexpected(calls.error());
    return std::move(*calls);
  };
  return shared_ ? as_calls(shared_calls::make(parts, shared_->parts()))
                 : as_calls(service_calls::make(parts, memory_->parts()));
}

result<void> indexer_process::reload(const config::node_config& config) {
  if (auto checked = config::check_indexer(config); !checked) return checked;
  set_scoring(config);
  configured_ = publishers_of(config);
  follow(wanted_publishers());
  return {};
}

indexer_process::publisher_map indexer_process::wanted_publishers() const {
  publisher_map all = configured_;
  all.insert(discovered_.begin(), discovered_.end());
  all.insert(running_.begin(), running_.end());
  return all;
}

// Adds what is new, removes what is gone, and does both for what has changed.
void indexer_process::follow(const publisher_map& next_publishers) {
  for (const auto& [name, options] : followed_) {
    const auto found = next_publishers.find(name);
    if (found == next_publishers.end() || !(found->second == options)) (void)events_->remove(name);
  }
  publisher_map done;
  for (const auto& [name, options] : next_publishers) {
    const auto found = followed_.find(name);
    if (found == followed_.end() || !(found->second == options)) {
      if (auto added = events_->add(options); !added) {
        log_warn(logger("indexer"), "a publisher cannot be followed",
                 {{"publisher", name}, {"reason", added.error().message()}});
        continue;
      }
    }
    done.emplace(name, options);
  }
  followed_ = std::move(done);
}

std::optional<indexer_process::file_mark> indexer_process::mark_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return file_mark{.inode = status.st_ino,
                   .size = static_cast<std::uint64_t>(status.st_size),
                   .modified_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec};
}

// A file that is away or wrong changes nothing: the last known publishers stay.
void indexer_process::look_for_publishers() {
  if (discovery_file_.empty()) return;
  const auto mark = mark_of(discovery_file_);
  if (!mark || mark == discovery_mark_) return;
  discovery_mark_ = mark;
  const auto read = config::load({.file = discovery_file_, .environment = {}, .sets = {}});
  const auto checked = read ? config::check_indexer(*read) : std::unexpected(read.error());
  if (!checked) {
    log_warn(logger("indexer"), "the file of discovery is not read; publishers stay as they are",
             {{"reason", checked.error().message()}});
    return;
  }
  discovered_ = publishers_of(*read);
  follow(wanted_publishers());
}

// Each rank of a pod is a publisher: "namespace/name", "namespace/name#1".
void indexer_process::look_for_pods() {
  auto pods = pods_ ? pods_->take() : std::nullopt;
  if (!pods) return;
  running_.clear();
  for (const auto& [name, address] : *pods) {
    const std::string host = address.contains(':') ? "[" + address + "]" : address;
    for (std::uint32_t rank = 0; rank < pod_ports_.ranks; ++rank) {
      publisher_options options{.name = rank == 0 ? name : name + "#" + std::to_string(rank)};
      options.endpoint = "tcp://" + host + ":" + std::to_string(pod_ports_.events + rank);
      if (pod_ports_.replay != 0) options.replay = "tcp://" + host + ":" + std::to_string(pod_ports_.replay + rank);
      running_.emplace(options.name, options);
    }
  }
  follow(wanted_publishers());
}

void indexer_process::look() {
  look_for_publishers();
  look_for_pods();
  if (tokenizer_) tokenizer_->look(std::chrono::steady_clock::now());
}

// Texts end first, so that the server does not wait for them.
void indexer_process::stop() noexcept {
  if (pods_) pods_->stop();
  if (texts_) texts_->stop();
  // Both at once, so that the two together end in time.
  std::thread rpc_end;
  if (rpc_ && server_) {
    try {
      rpc_end = std::thread([this] { rpc_->stop(); });
    } catch (const std::system_error&) {
      rpc_->stop();
    }
  }
  if (server_) server_->stop();
  if (rpc_end.joinable()) rpc_end.join();
  if (events_) events_->stop();
  if (shared_) shared_->writer().stop();
  if (tokenizer_) tokenizer_->stop();
}

}  // namespace cenote::indexer
