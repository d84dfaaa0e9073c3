// The configuration of `cenote indexer` in plain types.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/endpoint.hpp"
#include "core/enum_names.hpp"

namespace cenote::config {

struct indexer_section {
  std::optional<endpoint> listen;  ///< nothing: no HTTP over TCP
  std::optional<endpoint> grpc;    ///< nothing: no gRPC
  std::string socket;              ///< of HTTP; empty: none
  std::string token_file, tls_cert, tls_key, tls_ca;
  bool trusted_network = false;
  unsigned threads = 0;         ///< that answer; 0: chosen from the machine
  bool metric_aliases = false;  ///< metrics under llm-d's names, too
};

enum class event_source { automatic, vllm, sglang, cenote };  ///< the form of events
CENOTE_ENUM_NAMES(event_source, automatic, vllm, sglang, cenote);

enum class cleared_media { automatic, gpu, all };  ///< what AllBlocksCleared empties
CENOTE_ENUM_NAMES(cleared_media, automatic, gpu, all);

struct events_section {
  std::vector<std::string> bind;  ///< endpoints at which publishers connect
  std::string topic;
  event_source engine = event_source::automatic;
  std::uint16_t replay_port = 0;  ///< 0: none
  std::uint32_t ranks = 0;        ///< ports from a bound one on
  std::chrono::nanoseconds grace{};
};

struct publisher_config {
  std::string endpoint, replay, pod, model, node;
  event_source engine = event_source::automatic;
  cleared_media clear = cleared_media::automatic;
};

struct discovery_section {
  std::string file;                  ///< publishers in TOML; empty: none
  std::string kubernetes_selector;   ///< labels of pods; empty: none are watched
  std::string kubernetes_namespace;  ///< empty: all
  std::string kubernetes_server;     ///< empty: that of the cluster in which this process runs
  std::string kubernetes_account;    ///< folder with token and ca.crt
  std::uint16_t kubernetes_port = 0;
  std::uint16_t kubernetes_replay_port = 0;  ///< 0: none
};

enum class index_key { xxh3, fnv64_cbor };
CENOTE_ENUM_NAMES(index_key, xxh3, fnv64_cbor);

enum class index_backend { memory, redis };
CENOTE_ENUM_NAMES(index_backend, memory, redis);

struct index_section {
  index_backend backend = index_backend::memory;
  std::string url;           ///< of redis
  std::string auth_file;     ///< with a password for it; empty: none
  std::uint64_t memory = 0;  ///< bytes
  index_key key = index_key::xxh3;
  std::string seed;                ///< empty: with xxh3 a random one
  std::uint32_t block_tokens = 0;  ///< of all blocks of the index; 0: each publisher's own
};

struct tokenizer_section {
  std::string socket;                            ///< where it answers; empty: nowhere, or where `command` is given it
  std::string command;                           ///< that the indexer starts it by; empty: it does not
  std::vector<std::string> models, directories;  ///< of `command`
  bool hub = false;
  unsigned cache = 16, workers = 2;
};

struct scoring_section {
  std::map<std::string, double> weights;  ///< by medium
  std::chrono::nanoseconds speculative_ttl{};
};

}  // namespace cenote::config
