//! What openraft sends to other members. In: its requests. Out: answers, and for the lease, who acknowledged what was sent when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use openraft::error::{InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, Unreachable};
use openraft::network::{Backoff, RPCOption};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse, VoteRequest,
    VoteResponse,
};
use openraft::{RaftNetwork, RaftNetworkFactory};

use crate::lease::QuorumLease;
use crate::member::{Member, MemberId, Types};
use crate::timing::Timing;
use crate::transport::{CallError, Transport};
use crate::wire::{Call, Envelope, Reply};

/// Makes connections to members.
#[derive(Clone)]
pub(crate) struct Network {
    id: MemberId,
    cluster: String,
    transport: Arc<dyn Transport>,
    lease: Arc<QuorumLease>,
    timing: Timing,
    /// Nothing is sent any more: the member is gone, although something still holds openraft.
    closed: Arc<AtomicBool>,
}

/// A connection to one member.
pub(crate) struct Link {
    network: Network,
    target: MemberId,
    address: String,
}

impl Network {
    pub(crate) fn new(
        id: MemberId,
        cluster: String,
        transport: Arc<dyn Transport>,
        lease: Arc<QuorumLease>,
        timing: Timing,
        closed: Arc<AtomicBool>,
    ) -> Self {
        Self { id, cluster, transport, lease, timing, closed }
    }
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: MemberId, node: &Member) -> Link {
        Link { network: self.clone(), target, address: node.address.clone() }
    }
}

type RpcError<E> = RPCError<MemberId, Member, RaftError<MemberId, E>>;

impl Link {
    async fn ask<E: std::error::Error>(&self, call: Call, limit: Duration) -> Result<Reply, RpcError<E>> {
        let Network { id, cluster, transport, closed, .. } = &self.network;
        if closed.load(Relaxed) {
            return Err(unreachable(&CallError("this member was dropped".into())));
        }
        let envelope = Envelope { cluster: cluster.clone(), from: *id, to: Some(self.target), call };
        let answer = transport.call(&self.address, envelope, limit).await.map_err(|error| unreachable(&error))?;
        answer.map_err(|refusal| unreachable(&refusal))
    }
}

/// Tried again after a pause.
fn unreachable<E: std::error::Error>(error: &(impl std::error::Error + 'static)) -> RpcError<E> {
    RPCError::Unreachable(Unreachable::new(error))
}

/// An answer to another question: a fault of the other side.
fn confused<E: std::error::Error>() -> RpcError<E> {
    RPCError::Network(NetworkError::new(&CallError("an answer to another question".into())))
}

impl RaftNetwork<Types> for Link {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<MemberId>, RPCError<MemberId, Member, RaftError<MemberId>>> {
        let (vote, sent) = (request.vote, konverge_leadership::now());
        match self.ask(Call::Append(request), option.hard_ttl()).await? {
            Reply::Append(response) => {
                // The others have accepted the leader, whether or not their logs match.
                if !matches!(response, AppendEntriesResponse::HigherVote(_)) {
                    self.network.lease.acknowledge(vote, self.target, sent);
                }
                Ok(response)
            }
            _ => Err(confused()),
        }
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<Types>,
        option: RPCOption,
    ) -> Result<InstallSnapshotResponse<MemberId>, RPCError<MemberId, Member, RaftError<MemberId, InstallSnapshotError>>>
    {
        match self.ask(Call::Snapshot(request), option.hard_ttl()).await? {
            Reply::Snapshot(response) => {
                response.map_err(|error| RPCError::RemoteError(RemoteError::new(self.target, error)))
            }
            _ => Err(confused()),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<MemberId>,
        option: RPCOption,
    ) -> Result<VoteResponse<MemberId>, RPCError<MemberId, Member, RaftError<MemberId>>> {
        match self.ask(Call::Vote(request), option.hard_ttl()).await? {
            Reply::Vote(response) => Ok(response),
            _ => Err(confused()),
        }
    }

    /// Soon again: a lease is waited for.
    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(self.network.timing.heartbeat))
    }
}
