// TLS and a password for the client: SCRAM-SHA-256 (RFC 5802, RFC 7677) over the Auth service, which
// returns a session token for all further calls to the same broker.
'use strict';

const crypto = require('node:crypto');
const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const PROTO = process.env.QUORUMLOG_PROTO || path.join(__dirname, '..', '..', 'proto');
const MECHANISM = 'SCRAM-SHA-256';
const RENEWED = 0.8; // of a session's time
const { quorumlog } = grpc.loadPackageDefinition(
  loader.loadSync('quorumlog/v1/auth.proto', { includeDirs: [PROTO], keepCase: true, longs: Number }),
);

const hmac = (key, text) => crypto.createHmac('sha256', key).update(text).digest();

/** The session of one user with one broker, which is renewed before it expires. */
class Session {
  constructor(address, channel, user, password) {
    this._auth = new quorumlog.v1.Auth(address, channel);
    this._user = user;
    this._password = password;
    this._token = null; // a promise, so that calls at the same time log in once
    this._renewed = 0;
  }

  /** The metadata of a call. */
  async metadata() {
    if (this._token === null || Date.now() >= this._renewed) {
      this._renewed = Infinity;
      this._token = this._logIn();
    }
    const metadata = new grpc.Metadata();
    try {
      metadata.set('authorization', `Bearer ${await this._token}`);
    } catch (failure) {
      this._token = null;
      throw failure;
    }
    return metadata;
  }

  close() {
    this._auth.close();
  }

  async _logIn() {
    const began = Date.now();
    const stream = this._auth.Authenticate();
    const responses = stream[Symbol.asyncIterator]();
    const ask = async (request) => {
      stream.write(request);
      const { value, done } = await responses.next();
      if (done) {
        throw new Error(`${MECHANISM}: the broker ended the login`);
      }
      return value;
    };
    try {
      const nonce = crypto.randomBytes(18).toString('base64');
      const name = this._user.replaceAll('=', '=3D').replaceAll(',', '=2C');
      const first = `n=${name},r=${nonce}`;
      const challenge = (await ask({ mechanism: MECHANISM, message: Buffer.from(`n,,${first}`) })).message.toString();
      const { r, s, i } = Object.fromEntries(challenge.split(',').map((part) => [part[0], part.slice(2)]));
      if (!r.startsWith(nonce)) {
        throw new Error(`${MECHANISM}: the broker's nonce does not continue ours`);
      }
      const salted = crypto.pbkdf2Sync(this._password.normalize('NFKC'), Buffer.from(s, 'base64'), Number(i), 32, 'sha256');
      const clientKey = hmac(salted, 'Client Key');
      const final = `c=biws,r=${r}`;
      const signed = [first, challenge, final].join(',');
      const signature = hmac(crypto.createHash('sha256').update(clientKey).digest(), signed);
      const proof = Buffer.from(clientKey.map((byte, at) => byte ^ signature[at])).toString('base64');
      const answer = await ask({ message: Buffer.from(`${final},p=${proof}`) });
      const expected = `v=${hmac(hmac(salted, 'Server Key'), signed).toString('base64')}`;
      if (answer.message.toString() !== expected) {
        throw new Error(`${MECHANISM}: the broker does not know the password`);
      }
      this._renewed = began + answer.expires_ms * RENEWED;
      return answer.token;
    } finally {
      stream.end();
    }
  }
}

/**
 * Credentials for `new Client(address, credentials)`: TLS with the authority's certificate `ca` (a
 * Buffer of PEM), and a user's password.
 */
function secured(address, { ca, user, password }) {
  const tls = grpc.credentials.createSsl(ca);
  const session = new Session(address, tls, user, password);
  const ofCalls = grpc.credentials.createFromMetadataGenerator((_, done) => {
    session.metadata().then((metadata) => done(null, metadata), done);
  });
  return Object.assign(grpc.credentials.combineChannelCredentials(tls, ofCalls), { session });
}

module.exports = { secured };
